//! Programs that must not compile. If the compiler's messages change, run `TRYBUILD=overwrite cargo test --test
//! misuse`.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
