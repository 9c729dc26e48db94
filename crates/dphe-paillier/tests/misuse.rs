//! Programs that confuse the units of the arithmetic and must not compile. After a change of the compiler's
//! wording, run `TRYBUILD=overwrite cargo test -p dphe-paillier --test misuse`.

#[test]
fn misused_units_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
