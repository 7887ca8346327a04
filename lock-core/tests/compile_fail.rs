//! What the contract makes impossible by type: such programs do not compile.

#[test]
fn what_is_impossible_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
