//! The parameters of a statement, sent with it or written into it.

use crate::session_locks::rows::hexadecimal;
use sqlx::{Arguments, postgres::PgArguments};
use std::fmt::Write;

/// One parameter.
#[derive(Clone, Debug)]
pub(in crate::postgres) enum Value {
    Text(Option<String>),
    Number(i64),
}

/// The parameters of one statement, in order.
pub(in crate::postgres) type Values = Vec<Value>;

/// Makes the driver's arguments, sent with a statement.
pub(in crate::postgres) fn beside(values: Values) -> Result<PgArguments, sqlx::Error> {
    let mut arguments = PgArguments::default();
    for value in values {
        let added = match value {
            Value::Text(text) => arguments.add(text),
            Value::Number(number) => arguments.add(number),
        };
        added.map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

/// The parameters of a [`Ranged`](crate::statement::Ranged) statement: prefix, first name, and the end if there is one.
pub(in crate::postgres) fn range(prefix: &str, from: &str, beyond: Option<&str>) -> Values {
    [Some(prefix), Some(from), beyond].into_iter().flatten().map(Value::from).collect()
}

/// A statement's text with its parameters in place of `$1`, `$2` and so on.
///
/// Strings with other than plain characters are in hexadecimal digits, which are safe on every server, with any settings.
pub(in crate::postgres) fn written(statement: &str, values: &[Value]) -> String {
    let mut parts = statement.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, rest) = part.split_at(digits);
        match number.parse::<usize>().ok().and_then(|number| values.get(number.checked_sub(1)?)) {
            Some(value) => value.write(&mut text),
            None => text.extend(["$", number]),
        }
        text.push_str(rest);
    }
    text
}

impl Value {
    fn write(&self, text: &mut String) {
        // Writing to a String cannot fail.
        let _ = match self {
            Self::Text(None) => write!(text, "NULL::text"),
            Self::Text(Some(value)) => write!(text, "{}", quoted(value)),
            Self::Number(value) => write!(text, "'{value}'::bigint"),
        };
    }
}

/// The text as an expression.
pub(in crate::postgres) fn quoted(text: &str) -> String {
    // These mean themselves in every encoding. Decoding costs as much as a quarter of a statement that is prepared.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" _-".contains(&byte);
    if text.bytes().all(is_plain) {
        return format!("'{text}'::text");
    }
    format!("convert_from(decode('{}','hex'),'UTF8')", hexadecimal(text))
}

macro_rules! from {
    ($($given:ty: $value:ident => $made:expr),+ $(,)?) => {
        $(impl From<$given> for Value {
            fn from($value: $given) -> Self {
                $made
            }
        })+
    };
}

from!(
    &str: value => Self::Text(Some(value.to_owned())),
    String: value => Self::Text(Some(value)),
    Option<&str>: value => Self::Text(value.map(str::to_owned)),
    Option<String>: value => Self::Text(value),
    i64: value => Self::Number(value),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_is_written_in_its_place() {
        let mut values: Values = vec!["a'$2".into(), Value::from(-7), None::<&str>.into(), "".into()];
        values.extend((5..=10_i64).map(Value::from));
        let written = |statement| super::written(statement, &values);
        assert_eq!(written("SELECT '{x}'"), "SELECT '{x}'");
        assert_eq!(written("$1,$1"), ["convert_from(decode('61272432','hex'),'UTF8')"; 2].join(","));
        assert_eq!(written("x = $2::bigint$5"), "x = '-7'::bigint::bigint'5'::bigint");
        assert_eq!(written("($3)"), "(NULL::text)");
        assert_eq!(
            written("$4;$10;$1"),
            "''::text;'10'::bigint;convert_from(decode('61272432','hex'),'UTF8')"
        );
        assert_eq!(written("$11 $ $x"), "$11 $ $x");
    }
}
