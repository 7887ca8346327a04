//! Which stores must be available for a run of tests to pass.

use std::env;

/// Whether the store or server of this name is required. With `TENURE_TEST_REQUIRE=1` in the environment all are,
/// except those that `TENURE_TEST_WITHOUT` lists, separated by commas.
///
/// If a required one is missing, its tests fail; otherwise they are listed as ignored, with the reason.
#[must_use]
pub fn is_required(name: &str) -> bool {
    decide(
        name,
        env::var("TENURE_TEST_REQUIRE").ok().as_deref(),
        env::var("TENURE_TEST_WITHOUT").ok().as_deref(),
    )
}

fn decide(name: &str, require: Option<&str>, without: Option<&str>) -> bool {
    let mut excused = without.unwrap_or_default().split(',').map(str::trim);
    require == Some("1") && !excused.any(|excused| excused == name)
}

#[cfg(test)]
mod tests {
    use super::decide;

    #[test]
    fn all_but_those_that_are_excused() {
        assert!(!decide("redis", None, None));
        assert!(!decide("redis", Some("0"), None));
        assert!(decide("redis", Some("1"), None));
        assert!(decide("redis", Some("1"), Some("mysql, rediss")));
        assert!(!decide("redis", Some("1"), Some("mysql, redis")));
    }
}
