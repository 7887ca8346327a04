//! On which core a server is. The clients are on core 1.

/// The one that `TENURE_BENCH_SERVER_CORE` names, or core 0.
pub(crate) fn server_core() -> usize {
    let named = std::env::var("TENURE_BENCH_SERVER_CORE");
    named.map_or(0, |core| core.parse().expect("TENURE_BENCH_SERVER_CORE is the number of a core"))
}
