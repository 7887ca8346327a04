//! Clusters that accept writes on several nodes.

use sqlx::{FromRow, MySqlConnection};

/// The settings that tell. A server that was built without one of them does not show it.
const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
                        ('wsrep_on', 'wsrep_provider', 'group_replication_single_primary_mode')";

/// The kind of cluster that this server is a node of, if other nodes accept writes too. Row locks are local to a node
/// there.
pub(super) async fn with_several_writers(
    connection: &mut MySqlConnection,
) -> Result<Option<&'static str>, sqlx::Error> {
    let rows = sqlx::raw_sql(SETTINGS).fetch_all(connection).await?;
    let settings = rows.iter().map(<(String, String)>::from_row).collect::<Result<Vec<_>, _>>()?;
    Ok(kind(&settings))
}

fn kind(settings: &[(String, String)]) -> Option<&'static str> {
    let is = |name: &str, is_so: fn(&str) -> bool| {
        settings.iter().any(|(setting, value)| setting == name && is_so(value))
    };
    // MariaDB has the settings without a cluster too; then it loads no provider. Percona's cluster does not show
    // `wsrep_on`.
    if !is("wsrep_on", |on| on == "OFF") && is("wsrep_provider", |path| !matches!(path, "" | "none")) {
        return Some("a Galera cluster");
    }
    is("group_replication_single_primary_mode", |single| single == "OFF")
        .then_some("Group Replication in multi-primary mode")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_writers_are_recognized_by_settings() {
        let kind = |settings: &[(&str, &str)]| {
            let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            kind(&settings.collect::<Vec<_>>())
        };
        let galera = |on, provider| kind(&[("wsrep_on", on), ("wsrep_provider", provider)]);
        assert_eq!(galera("ON", "/usr/lib/galera/libgalera_smm.so"), Some("a Galera cluster"));
        assert_eq!(
            kind(&[("wsrep_provider", "/usr/lib/galera4/libgalera_smm.so")]),
            Some("a Galera cluster")
        );
        // As Debian's MariaDB is by itself, and as one whose cluster is switched off.
        assert_eq!(galera("ON", "none"), None);
        assert_eq!(galera("OFF", "/usr/lib/galera/libgalera_smm.so"), None);
        let group = |single| kind(&[("group_replication_single_primary_mode", single)]);
        assert_eq!(group("OFF"), Some("Group Replication in multi-primary mode"));
        assert_eq!(group("ON"), None);
        assert_eq!(kind(&[]), None);
    }
}
