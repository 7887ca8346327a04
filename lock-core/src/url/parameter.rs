//! The parameters of a URL.

use super::{Refusal, decode, password};
use crate::contract::{Error, Name};
use std::{ops::RangeInclusive, time::Duration};

/// The file of a password, in words.
const PRIVATE: &str = "a file that other users may not read";

/// One parameter of a URL, `?name=value`, that changes options of type `O`.
///
/// Each has a name, the values that it takes, its default in words, a sentence that says what it does, and the method
/// of the options that takes the value. That value is then of the right kind and within its range.
///
/// # Examples
///
/// ```
/// use std::{ops::RangeInclusive, time::Duration};
/// use tenure_core::url::Parameter;
///
/// struct Patience(Duration);
///
/// const RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_mins(10);
/// const CONNECT_TIMEOUT: Parameter<Patience> =
///     Parameter::duration("connect_timeout", RANGE, "5s", |_, longest| Patience(longest))
///         .about("how long an attempt to connect may take");
/// assert_eq!(CONNECT_TIMEOUT.entry().takes, "a duration with its unit, 1ms to 10m");
/// ```
pub struct Parameter<O> {
    name: &'static str,
    kind: Kind<O>,
    default: &'static str,
    about: &'static str,
}

/// A parameter's type, and the method that takes the value.
enum Kind<O> {
    Duration(RangeInclusive<Duration>, fn(O, Duration) -> O),
    Number(RangeInclusive<u32>, fn(O, u32) -> O),
    Flag(fn(O, bool) -> O),
    Word(&'static [&'static str], fn(O, &'static str) -> O),
    /// The form in words, the check whether a text has it, and the method.
    Text(&'static str, fn(&str) -> bool, fn(O, &str) -> O),
    /// The method takes the file's content.
    File(fn(O, Vec<u8>) -> O),
    /// The method takes the password in the file.
    Password(fn(O, String) -> O),
}

/// A description of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// The values that it takes.
    pub takes: String,
    /// Its default.
    pub default: &'static str,
    /// Its effect.
    pub about: &'static str,
}

impl<O> Parameter<O> {
    /// Takes a duration within a range, such as `1h30m`.
    #[must_use]
    pub const fn duration(
        name: &'static str,
        range: RangeInclusive<Duration>,
        default: &'static str,
        set: fn(O, Duration) -> O,
    ) -> Self {
        Self::new(name, Kind::Duration(range, set), default)
    }

    /// Takes a whole number within a range.
    #[must_use]
    pub const fn number(
        name: &'static str,
        range: RangeInclusive<u32>,
        default: &'static str,
        set: fn(O, u32) -> O,
    ) -> Self {
        Self::new(name, Kind::Number(range, set), default)
    }

    /// Takes `true` or `false`.
    #[must_use]
    pub const fn flag(name: &'static str, default: &'static str, set: fn(O, bool) -> O) -> Self {
        Self::new(name, Kind::Flag(set), default)
    }

    /// Takes one of these words.
    #[must_use]
    pub const fn word(
        name: &'static str,
        words: &'static [&'static str],
        default: &'static str,
        set: fn(O, &'static str) -> O,
    ) -> Self {
        Self::new(name, Kind::Word(words, set), default)
    }

    /// Takes any text: `form` describes it, and the options check it.
    #[must_use]
    pub const fn text(
        name: &'static str,
        form: &'static str,
        default: &'static str,
        set: fn(O, &str) -> O,
    ) -> Self {
        Self::new(name, Kind::Text(form, |_| true, set), default)
    }

    /// Takes a text of this form, which `fits` checks.
    #[must_use]
    pub const fn checked_text(
        name: &'static str,
        form: &'static str,
        fits: fn(&str) -> bool,
        default: &'static str,
        set: fn(O, &str) -> O,
    ) -> Self {
        Self::new(name, Kind::Text(form, fits, set), default)
    }

    /// Takes the namespace (clause X3), which is called `prefix` and has the same form and meaning in every store.
    #[must_use]
    pub const fn prefix(default: &'static str, set: fn(O, &str) -> O) -> Self {
        let form = "1 to 200 bytes of UTF-8 without control characters";
        let fits = |text: &str| text.len() <= Name::MAX_BYTES && !text.chars().any(char::is_control);
        Self::new("prefix", Kind::Text(form, fits, set), default)
            .about("a namespace: locks of two prefixes never collide, unless one begins with the other")
    }

    /// Takes a file that has the password. It is read together with the URL, so the store finds the password in its
    /// [`Place`](super::Place), and its options need nothing for it.
    #[must_use]
    pub const fn password_file() -> Self {
        Self::text(password::FILE, PRIVATE, "none", |options, _| options)
            .about("the file that has the password, if the URL has none")
    }

    /// Takes a file, which is read together with the URL, for the method that takes its content.
    #[must_use]
    pub const fn file(name: &'static str, default: &'static str, set: fn(O, Vec<u8>) -> O) -> Self {
        Self::new(name, Kind::File(set), default)
    }

    /// Takes a file with a password that is not the URL's own, by the rules of [`password_file`](Self::password_file).
    #[must_use]
    pub const fn other_password_file(
        name: &'static str,
        default: &'static str,
        set: fn(O, String) -> O,
    ) -> Self {
        Self::new(name, Kind::Password(set), default)
    }

    const fn new(name: &'static str, kind: Kind<O>, default: &'static str) -> Self {
        Self { name, kind, default, about: "" }
    }

    /// Says what the parameter does, without a full stop: "how long an attempt to connect may take".
    #[must_use]
    pub const fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    /// Describes the parameter.
    #[must_use]
    pub fn entry(&self) -> Entry {
        Entry { name: self.name, takes: self.kind.in_words(), default: self.default, about: self.about }
    }

    /// Sets the value in the options, from the text in the URL.
    pub(super) fn read(&self, options: O, written: &str) -> Result<O, Refusal> {
        let valid = || format!("expected {}", self.kind.in_words());
        if written.is_empty() {
            return Err(Refusal::new(format!("parameter {} has no value", self.name), valid()));
        }
        let given = decode(written)?;
        match self.kind {
            Kind::Password(set) => return Ok(set(options, password::read(&given, self.name)?)),
            Kind::File(set) => {
                let unreadable = |error| {
                    Refusal::new(
                        format!("cannot read the {} file {given:?} ({error})", self.name),
                        "check its path and permissions",
                    )
                };
                return Ok(set(options, std::fs::read(&given).map_err(unreadable)?));
            }
            _ => {}
        }
        self.kind.take(options, &given).ok_or_else(|| {
            let given = Error::excerpt(&given);
            Refusal::new(format!("invalid {}: {given}", self.name), valid())
        })
    }
}

impl<O> Kind<O> {
    fn take(&self, options: O, given: &str) -> Option<O> {
        match self {
            Self::Duration(range, set) => {
                let given = humantime::parse_duration(given).ok()?;
                range.contains(&given).then(|| set(options, given))
            }
            Self::Number(range, set) => {
                let given = given.parse().ok()?;
                range.contains(&given).then(|| set(options, given))
            }
            Self::Flag(set) => Some(set(options, given.parse().ok()?)),
            Self::Word(words, set) => Some(set(options, words.iter().find(|word| **word == given)?)),
            Self::Text(_, fits, set) => fits(given).then(|| set(options, given)),
            // Their files are read before.
            Self::File(_) | Self::Password(_) => None,
        }
    }

    fn in_words(&self) -> String {
        match self {
            Self::Duration(range, _) => {
                format!(
                    "a duration with its unit, {} to {}",
                    in_one_unit(*range.start()),
                    in_one_unit(*range.end())
                )
            }
            Self::Number(range, _) => format!("{} to {}", range.start(), range.end()),
            Self::Flag(_) => "true or false".to_owned(),
            Self::Word(words, _) => match words {
                [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
                words => words.concat(),
            },
            Self::Text(form, ..) => (*form).to_owned(),
            Self::File(_) => "a file".to_owned(),
            Self::Password(_) => PRIVATE.to_owned(),
        }
    }
}

/// Formats a duration in the greatest unit of which it is a whole number.
fn in_one_unit(span: Duration) -> String {
    let millis = span.as_millis();
    let units = [(86_400_000, "days"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    match units.into_iter().find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit)) {
        Some((unit, word)) => format!("{}{word}", millis / unit),
        None => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::encode;
    use proptest::prelude::*;

    const RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(1);
    const POLL: Parameter<Duration> = Parameter::duration("poll", RANGE, "1s", |_, given| given);
    const COUNT: Parameter<u32> = Parameter::number("count", 1..=64, "1", |_, given| given);
    const WORD: Parameter<&str> = Parameter::word("word", &["lock", "read-write"], "lock", |_, given| given);
    const PREFIX: Parameter<String> = Parameter::prefix("none", |_, given| given.to_owned());

    proptest! {
        #[test]
        fn values_are_read_as_written(millis in 1..=3_600_000_u64, count in 1..=64_u32, prefix in "\\PC{1,50}") {
            let poll = Duration::from_millis(millis);
            let written = encode(&humantime::format_duration(poll).to_string());
            prop_assert_eq!(POLL.read(Duration::ZERO, &written).unwrap(), poll);
            prop_assert_eq!(COUNT.read(0, &count.to_string()).unwrap(), count);
            prop_assert_eq!(PREFIX.read(String::new(), &encode(&prefix)).unwrap(), prefix);
        }

        #[test]
        fn any_other_text_is_refused(
            text in prop_oneof![any::<String>(), "-?[0-9.]{1,25}(ns|ms|s|m|h|days|years|x)?( [0-9]{1,25}h)?", "(lock|true| |%6c){0,2}"],
        ) {
            let given = decode(&text).ok();
            if let Ok(poll) = POLL.read(Duration::ZERO, &text) {
                prop_assert!(RANGE.contains(&poll));
            }
            if let Ok(count) = COUNT.read(0, &text) {
                prop_assert_eq!(given.as_deref().and_then(|given| given.parse().ok()), Some(count));
                prop_assert!((1..=64).contains(&count));
            }
            if let Ok(word) = WORD.read("", &text) {
                prop_assert_eq!(given.as_deref(), Some(word));
            }
            if let Ok(prefix) = PREFIX.read(String::new(), &text) {
                prop_assert!(!prefix.chars().any(char::is_control) && given == Some(prefix));
            }
        }
    }
}
