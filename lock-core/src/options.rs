//! A store's options, as a table: for authors of stores.
//!
//! Each row of [`options!`](crate::options!) states one option once: its documentation, its name and type, its default, its
//! range, and the sentence that explains it in a URL's help. From the row come its field, its setter, its range as a
//! constant, the check of that range, and the parameter of the URL.
//!
//! Options of other kinds stay outside: fields, setters and [parameters](crate::url::Parameter) written by hand.

use crate::contract::{Error, Name};
use std::{fmt, fs::File, path::Path};

/// Makes the options of a store from a table.
///
/// A row is `name: kind = default, RANGE = least..=most, "what it does";`, with its documentation above.
///
/// | kind | type | default | range |
/// |---|---|---|---|
/// | `Duration` | [`Duration`](std::time::Duration) | `5 s`, also in `ms`, `min`, `h`, `day` or `days` | `POLL_RANGE = 1 ms..=1 min` |
/// | `u32` | `u32` | `1` | `REPLICAS_RANGE = 1..=5` |
/// | `bool` | `bool` | `false` | |
/// | `Text("its form")` | `String` | `"locks"` | |
/// | `Prefix` | `String`, the namespace | `"tenure"` or `""` | |
///
/// This makes
///
/// - the struct, with a field for each row, `Clone`, `Debug`, and the values by default as its `Default`;
/// - for the options, which keep that struct in a field `values`: a setter for each row, whose documentation ends with
///   range and default; the constants of the ranges; `checked_values`, which returns the values or the first that is
///   invalid; and `parameters`, for [`Urls`](crate::url::Urls).
///
/// Options with a type parameter name its bound: `struct Values for ServerOptions<D> where D: Driver;`.
///
/// # Examples
///
/// ```
/// use std::{path::PathBuf, time::Duration};
/// use tenure_core::{Error, url::{Scheme, Urls, decode}};
///
/// tenure_core::options! {
///     /// The options that are not the directory.
///     struct Values for FilesOptions;
///
///     /// Sets the namespace.
///     prefix: Prefix = "";
///     /// Sets the longest time between two attempts of a waiter.
///     poll: Duration = 50 ms, POLL_RANGE = 1 ms..=1 min, "the longest time between two attempts of a waiter";
/// }
///
/// #[derive(Clone, Debug)]
/// pub struct FilesOptions {
///     directory: PathBuf,
///     values: Values,
/// }
///
/// const URLS: Urls<FilesOptions> = Urls {
///     schemes: &[Scheme { form: "files:PATH", about: "a directory of files" }],
///     parameters: &[FilesOptions::parameters()],
/// };
///
/// impl FilesOptions {
///     pub fn new(directory: impl Into<PathBuf>) -> Self {
///         Self { directory: directory.into(), values: Values::default() }
///     }
///
///     pub fn from_url(url: &str) -> Result<Self, Error> {
///         URLS.read(url, |place| match place.path() {
///             Some(path) if !path.is_empty() => Ok(Self::new(decode(path)?)),
///             _ => Err(place.refuse("missing directory")),
///         })
///     }
/// }
///
/// let options = FilesOptions::from_url("files:/srv/my%20locks?poll=1s")?;
/// assert_eq!(options.directory, PathBuf::from("/srv/my locks"));
/// assert_eq!(options.checked_values()?.poll, Duration::from_secs(1));
///
/// let error = options.poll(Duration::ZERO).checked_values().unwrap_err();
/// assert_eq!(error.to_string(), "invalid poll: 0ns; expected 1ms to 60s");
/// let error = FilesOptions::from_url("files:/srv/locks?poll=0s").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"invalid store URL "files:/srv/locks": invalid poll: "0s"; expected a duration with its unit, 1ms to 1m"#
/// );
/// # Ok::<(), Error>(())
/// ```
#[macro_export]
macro_rules! options {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $Values:ident for $Options:ty $(where $Type:ident: $Bound:ident)?;
        $(
            $(#[$about_row:meta])*
            $name:ident: $Kind:ident $(($form:expr))? = $default:tt $($unit:ident)?
                $(, $RANGE:ident = $least:literal $($least_unit:ident)? ..= $most:literal $($most_unit:ident)?)?
                $(, $about:literal)?;
        )*
    ) => {
        $(#[$attribute])*
        #[allow(clippy::struct_field_names, clippy::struct_excessive_bools, reason = "the URL has the names")]
        #[derive(Clone, Debug)]
        $visible struct $Values {
            $($visible $name: $crate::__options!(@type $Kind),)*
        }

        impl ::std::default::Default for $Values {
            fn default() -> Self {
                Self { $($name: $crate::__options!(@default $Kind $default $($unit)?),)* }
            }
        }

        impl $(<$Type: $Bound>)? $Options {
            $($(
                #[doc = concat!("The range of [`", stringify!($name), "`](Self::", stringify!($name), ").")]
                pub const $RANGE: ::std::ops::RangeInclusive<$crate::__options!(@type $Kind)> =
                    $crate::__options!(@value $least $($least_unit)?)
                        ..=$crate::__options!(@value $most $($most_unit)?);
            )?)*

            $(
                $(#[$about_row])*
                #[doc = ""]
                $(#[doc = concat!(
                    "From ", $crate::__options!(@words " " $least $($least_unit)?),
                    " to ", $crate::__options!(@words " " $most $($most_unit)?), "."
                )])?
                #[doc = concat!("Default: ", $crate::__options!(@words " " $default $($unit)?), ".")]
                pub fn $name(mut self, $name: $crate::__options!(@given $Kind)) -> Self {
                    self.values.$name = $name.into();
                    self
                }
            )*

            /// Returns the values of the table, if each is within its range.
            $visible fn checked_values(&self) -> ::std::result::Result<$Values, $crate::Error> {
                let values = self.values.clone();
                $(
                    $($crate::Error::check_range(stringify!($name), values.$name, &Self::$RANGE)?;)?
                    $crate::__options!(@check $Kind values.$name);
                )*
                Ok(values)
            }

            /// The parameters of the table, for URLs of anything that contains these options.
            $visible const fn parameters<O: $crate::options::Contains<Self> + 'static>()
            -> &'static [$crate::url::Parameter<O>] {
                const {
                    &[$(
                        $crate::__options!(
                            @parameter $Kind $(($form))? $($RANGE)?;
                            stringify!($name),
                            $crate::__options!(@words "" $default $($unit)?),
                            |within: O, given| within.change(|options: Self| options.$name(given))
                        )$(.about($about))?,
                    )*]
                }
            }
        }
    };
}

/// The parts of [`options!`](crate::options!) that differ between kinds of rows.
#[doc(hidden)]
#[macro_export]
macro_rules! __options {
    (@type Duration) => { ::std::time::Duration };
    (@type u32) => { u32 };
    (@type bool) => { bool };
    (@type $Text:ident) => { ::std::string::String };

    (@check Prefix $text:expr) => { $crate::options::check_prefix(&$text)? };
    (@check $Kind:ident $value:expr) => {};

    // How a setter takes the value.
    (@given Prefix) => { impl ::std::convert::Into<::std::string::String> };
    (@given Text) => { impl ::std::convert::Into<::std::string::String> };
    (@given $Kind:ident) => { $crate::__options!(@type $Kind) };

    (@default Prefix $text:tt) => { ::std::borrow::ToOwned::to_owned($text) };
    (@default Text $text:tt) => { ::std::borrow::ToOwned::to_owned($text) };
    (@default $Kind:ident $($value:tt)+) => { $crate::__options!(@value $($value)+) };

    (@value $number:tt ms) => { ::std::time::Duration::from_millis($number) };
    (@value $number:tt s) => { ::std::time::Duration::from_secs($number) };
    (@value $number:tt min) => { ::std::time::Duration::from_mins($number) };
    (@value $number:tt h) => { ::std::time::Duration::from_hours($number) };
    (@value $number:tt day) => { ::std::time::Duration::from_hours($number * 24) };
    (@value $number:tt days) => { ::std::time::Duration::from_hours($number * 24) };
    (@value $value:tt) => { $value };

    // With what is between a number and its unit.
    (@words $gap:literal "") => { "none" };
    (@words $gap:literal $value:tt $($unit:ident)?) => { concat!($value $(, $gap, stringify!($unit))?) };

    (@parameter Duration $RANGE:ident; $name:expr, $default:expr, $set:expr) => {
        $crate::url::Parameter::duration($name, Self::$RANGE, $default, $set)
    };
    (@parameter u32 $RANGE:ident; $name:expr, $default:expr, $set:expr) => {
        $crate::url::Parameter::number($name, Self::$RANGE, $default, $set)
    };
    (@parameter bool; $name:expr, $default:expr, $set:expr) => {
        $crate::url::Parameter::flag($name, $default, $set)
    };
    (@parameter Text($form:expr); $name:expr, $default:expr, $set:expr) => {
        $crate::url::Parameter::text($name, $form, $default, $set)
    };
    (@parameter Prefix; $name:expr, $default:expr, $set:expr) => {
        $crate::url::Parameter::prefix($default, $set)
    };
}

/// Options, or something that a URL is read into and that has such options in it, once or several times.
pub trait Contains<Options> {
    /// Changes the options, each in the same way.
    #[must_use]
    fn change(self, change: impl FnMut(Options) -> Options) -> Self;
}

impl<Options> Contains<Self> for Options {
    fn change(self, mut change: impl FnMut(Self) -> Self) -> Self {
        change(self)
    }
}

/// A password or a key, of which `Debug` shows only that it is there.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret<T>(pub T);

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Stands in [`Error::InvalidOption`] for a text that must not be shown, such as a key. For a URL, tenure puts the file's
/// path in its place, so the option must be called as the URL's parameter is.
pub const GIVEN_TEXT: &str = "the given text";

/// Checks that a file can be opened. A driver opens it only when it connects, and a missing file then looks like a server
/// that is down.
///
/// # Errors
///
/// [`Error::InvalidOption`], with the path and the reason.
pub fn check_readable(option: &'static str, path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    File::open(path).map(drop).map_err(|error| {
        let given = format!("{:?} ({error})", path.to_string_lossy());
        Error::invalid_option(option, given, "a file that this user can read")
    })
}

/// Checks the form that a namespace has in every store.
///
/// # Errors
///
/// [`Error::InvalidOption`].
pub fn check_prefix(prefix: &str) -> Result<(), Error> {
    if prefix.len() <= Name::MAX_BYTES && !prefix.chars().any(char::is_control) {
        return Ok(());
    }
    let given = Error::excerpt(prefix);
    Err(Error::invalid_option("prefix", given, "at most 200 bytes of UTF-8 without control characters"))
}
