//! The compiler's words about uses of Tollgate, right and wrong, are tested in a package of their own: trybuild compiles anew all
//! that the package needs, and the tests of the library need three times as many crates.
