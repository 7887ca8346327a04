//! The name of the table, the only text that is ever put into a statement.

use tenure_core::Error;

/// The default table.
pub(crate) const DEFAULT_TABLE: &str = "tenure_locks";

/// The suffix of the name of a table of latches.
#[cfg(feature = "_server")]
const LATCHES: &str = "_latches";

/// The suffix of the name of a sequence of tokens.
#[cfg(feature = "postgres")]
const TOKENS: &str = "_tokens";

/// A table's name that never needs escaping; statements quote it anyway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableName(String);

impl TableName {
    /// The greatest length that every database accepts, which is PostgreSQL's limit.
    const MAX_BYTES: usize = 63;

    /// Its form, in words.
    pub(crate) const FORM: &str =
        "1 to 63 ASCII letters, digits and underscores, not beginning with a digit or with sqlite_";

    pub(crate) fn new(text: &str) -> Result<Self, Error> {
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let begins = text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        let reserved = text.len() >= 7 && text.as_bytes()[..7].eq_ignore_ascii_case(b"sqlite_");
        if plain && begins && !reserved && text.len() <= Self::MAX_BYTES {
            return Ok(Self(text.to_owned()));
        }
        let given = Error::excerpt(text);
        Err(Error::invalid_option("table", given, Self::FORM))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The table of the latches beside this one.
    #[cfg(feature = "_server")]
    pub(crate) fn of_latches(&self) -> Result<Self, Error> {
        self.with(LATCHES, "if latches are used")
    }

    /// The sequence of the tokens of this table.
    #[cfg(feature = "postgres")]
    pub(crate) fn of_tokens(&self) -> Result<Self, Error> {
        self.with(TOKENS, "for advisory locks")
    }

    #[cfg(feature = "_server")]
    fn with(&self, suffix: &str, when: &str) -> Result<Self, Error> {
        Self::new(&format!("{}{suffix}", self.0)).map_err(|_| {
            let allowed = format!("at most {} characters {when}", Self::MAX_BYTES - suffix.len());
            Error::invalid_option("table", format_args!("{:?}", self.0), allowed)
        })
    }
}

/// A table of a server, with the schema (in MySQL's words, the database) that it is in, if one was given.
#[cfg(feature = "_server")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TablePath {
    schema: Option<TableName>,
    pub(crate) table: TableName,
}

#[cfg(feature = "_server")]
impl TablePath {
    pub(crate) const FORM: &str = "TABLE or SCHEMA.TABLE, each 1 to 63 ASCII letters, digits and underscores, not \
                                   beginning with a digit or with sqlite_";

    /// Reads `table` or `schema.table`.
    pub(crate) fn new(text: &str) -> Result<Self, Error> {
        let (schema, table) =
            text.split_once('.').map_or((None, text), |(schema, table)| (Some(schema), table));
        let parts =
            || Ok(Self { schema: schema.map(TableName::new).transpose()?, table: TableName::new(table)? });
        parts().map_err(|_: Error| Error::invalid_option("table", Error::excerpt(text), Self::FORM))
    }

    /// The schema, if one was given.
    pub(crate) fn schema(&self) -> Option<&str> {
        self.schema.as_ref().map(TableName::as_str)
    }

    /// The table of the latches beside this one.
    pub(crate) fn of_latches(&self) -> Result<Self, Error> {
        Ok(Self { schema: self.schema.clone(), table: self.table.of_latches()? })
    }

    /// The sequence of the tokens of this table.
    #[cfg(feature = "postgres")]
    pub(crate) fn of_tokens(&self) -> Result<Self, Error> {
        Ok(Self { schema: self.schema.clone(), table: self.table.of_tokens()? })
    }

    /// The path for statements, with each part in `quote`s.
    pub(crate) fn quoted(&self, quote: char) -> String {
        let quoted = |name: &TableName| format!("{quote}{}{quote}", name.as_str());
        match &self.schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(&self.table)),
            None => quoted(&self.table),
        }
    }
}

#[cfg(feature = "_server")]
impl std::fmt::Display for TablePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{}.", schema.as_str())?;
        }
        f.write_str(self.table.as_str())
    }
}

/// The command that prints the DDL of a table. `default` is the one whose DDL it prints without being told.
pub(crate) fn schema_command(of: &str, table: &str, default: &str) -> String {
    let table = if table == default { String::new() } else { format!(" --table {table}") };
    format!("tenure schema {of}{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "_server")]
    #[test]
    fn refused_path_is_shown_as_a_whole() {
        let error = TablePath::new("a.b.c").unwrap_err().to_string();
        assert!(error.contains("\"a.b.c\"; expected TABLE or SCHEMA.TABLE"), "{error}");
    }

    #[test]
    fn table_names_must_be_plain() {
        for good in ["tenure_locks", "T", "_x1", &"x".repeat(63)] {
            assert!(TableName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "a b", "a\"b", "a;--", "é", "a.b", "sqlite_x", "SQLite_x", &"x".repeat(64)] {
            let error = TableName::new(bad).unwrap_err().to_string();
            assert!(error.contains("table") && error.contains("63 ASCII letters"), "{error}");
        }
    }

    #[cfg(feature = "_server")]
    proptest::proptest! {
        #[test]
        fn path_needs_no_escaping_and_means_itself(text in ".{0,12}|[a-zA-Z_]{1,40}[.]?[a-zA-Z0-9_\"`;]{0,40}") {
            if let Ok(path) = TablePath::new(&text) {
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
                proptest::prop_assert!(text.chars().all(plain), "{}", text);
                proptest::prop_assert_eq!(path.to_string(), &*text);
                let quoted = format!("\"{}\"", text.replace('.', "\".\""));
                proptest::prop_assert_eq!(path.quoted('"'), quoted);
            }
        }
    }

    #[cfg(feature = "_server")]
    #[test]
    fn table_path_has_at_most_a_schema() {
        let latches = |table| TablePath::new(table).unwrap().of_latches().map(|table| table.to_string());
        assert_eq!(latches("app.locks").unwrap(), "app.locks_latches");
        assert!(latches(&"x".repeat(56)).unwrap_err().to_string().contains("at most 55 characters"));
        for bad in ["a.b.c", ".a", "a.", "a.\"b", "a .b"] {
            assert!(TablePath::new(bad).is_err(), "{bad}");
        }
    }
}
