//! How the scripts write modes.

use std::{fmt, num::NonZeroU32};
use tenure_core::Mode;

/// A mode in words: `alone`, `readers`, `permits of 4`.
pub(crate) struct ModeText(pub(crate) Mode);

impl fmt::Display for ModeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Mode::Shared => f.write_str("readers"),
            Mode::Permit { of, .. } => write!(f, "permits of {of}"),
            _ => f.write_str("alone"),
        }
    }
}

/// How many permits a claim in this mode takes; 1 in other modes.
pub(crate) fn take(mode: Mode) -> u32 {
    match mode {
        Mode::Permit { take, .. } => take.get(),
        _ => 1,
    }
}

/// Reads the mode of a holder that takes this many permits.
pub(crate) fn read(how: &str, take: NonZeroU32) -> Option<Mode> {
    match how {
        "alone" => Some(Mode::Exclusive),
        "readers" => Some(Mode::Shared),
        how => {
            // As strict as the scripts, to which anything else is a foreign client's lock.
            let of =
                how.strip_prefix("permits of ").filter(|of| of.starts_with(|c| matches!(c, '1'..='9')))?;
            of.parse().ok().map(|of: NonZeroU32| Mode::Permit { take, of })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn only_written_modes_are_read(how in ".*|(alone|readers|permits of [0-9+-]{0,11}) ?") {
            if let Some(mode) = read(&how, NonZeroU32::MIN) {
                proptest::prop_assert_eq!(ModeText(mode).to_string(), how);
            }
        }
    }
}
