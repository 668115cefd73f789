//! The program, run as a user does, and its words held to files. `TRYCMD=overwrite cargo test -p tollgate-cli` writes them anew:
//! read what changes.

#[test]
fn the_program_says_what_the_files_say() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}
