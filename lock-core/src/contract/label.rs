//! Valid labels of holders.

use crate::contract::{Error, HolderInfo, Name};

impl HolderInfo {
    /// Checks that a text can be a label, before any store is asked.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if it is longer than 200 bytes or contains a control character.
    ///
    /// # Examples
    ///
    /// ```
    /// use tenure_core::HolderInfo;
    ///
    /// assert!(HolderInfo::check_label("nightly backup").is_ok());
    /// assert!(HolderInfo::check_label("two\nlines").is_err());
    /// ```
    pub fn check_label(label: impl Into<String>) -> Result<String, Error> {
        let label = label.into();
        if label.len() <= Name::MAX_BYTES && !label.chars().any(char::is_control) {
            return Ok(label);
        }
        let given = Error::excerpt(&label);
        Err(Error::invalid_option("label", given, "at most 200 bytes of UTF-8 without control characters"))
    }
}
