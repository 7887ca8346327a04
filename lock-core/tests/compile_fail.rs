//! Types enforce parts of the contract: programs that break these do not compile.

#[test]
fn what_is_impossible_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
