//! Programs that must not compile. After a change of the compiler's wording: `TRYBUILD=overwrite cargo test --test misuse`.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
