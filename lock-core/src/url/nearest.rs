//! The known word that a misspelt one stands for.

/// The value of the known word that `given` probably stands for, in upper or lower case. They differ in one letter of
/// every three at most, and never in more than two. Swapped neighbours count as one.
pub(super) fn nearest<'k, T>(given: &str, known: impl IntoIterator<Item = (&'k str, T)>) -> Option<T> {
    let given = given.to_ascii_lowercase();
    let most = (given.chars().count() / 3).min(2);
    let known = known.into_iter().map(|(word, what)| (strsim::osa_distance(&given, word), what));
    let near = known.filter(|(distance, _)| *distance <= most);
    near.min_by_key(|(distance, _)| *distance).map(|(_, what)| what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 10] =
        ["memory", "redis", "rediss", "redis+unix", "postgres", "mysql", "zookeeper", "etcd", "nats", "fair"];

    fn meant(given: &str) -> Option<&'static str> {
        nearest(given, KNOWN.map(|word| (word, word)))
    }

    #[test]
    fn misspelt_word_finds_the_nearest() {
        for (given, word) in [
            ("reddis", "redis"),
            ("REDISS", "rediss"),
            ("memroy", "memory"),
            ("postgresql", "postgres"),
            ("redis-unix", "redis+unix"),
            ("zokeper", "zookeeper"),
            ("etdc", "etcd"),
            ("fari", "fair"),
        ] {
            assert_eq!(meant(given), Some(word), "{given}");
        }
    }

    #[test]
    fn unrelated_word_finds_nothing() {
        for given in ["", "m", "db", "ftp", "pgsql", "valkey", "https", "zk"] {
            assert_eq!(meant(given), None, "{given}");
        }
    }
}
