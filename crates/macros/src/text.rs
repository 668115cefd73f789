//! Texts as types: the compiler takes no text as a parameter of a type, but it takes numbers, and a number of 128 bits is 16
//! bytes of text.

use std::ffi::OsStr;
use std::path::PathBuf;

use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::Path;

/// The place of an annotation. It tells two handlers of one name apart, and a reader of a log finds it.
pub(crate) struct Place {
    file: PathBuf,
    line: usize,
}

impl Place {
    pub(crate) fn new(file: impl Into<PathBuf>, line: usize) -> Self {
        Self {
            file: file.into(),
            line,
        }
    }

    /// The file and its folder: enough to find it, and the same on whatever machine it was compiled.
    pub(crate) fn text(&self) -> String {
        let mut parts = self.file.iter().rev().map(OsStr::to_string_lossy);
        let file = parts.next().unwrap_or_default();
        match parts.next() {
            Some(folder) => format!("{folder}/{file}:{}", self.line),
            None => format!("{file}:{}", self.line),
        }
    }
}

/// The type that says `text`.
pub(crate) fn text(krate: &Path, text: &str) -> TokenStream {
    let end = quote!(#krate::__private::End);
    text.as_bytes().rchunks(16).fold(end, |rest, bytes| {
        let number = bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u128::from(*byte));
        let number = Literal::u128_unsuffixed(number);
        quote!(#krate::__private::Chars<#number, #rest>)
    })
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    #[test]
    fn a_text_is_numbers_of_16_bytes_of_which_the_first_may_be_shorter() {
        let krate: Path = parse_quote!(t);
        let texts = [
            ("", "t::__private::End"),
            (
                "10/min",
                "t::__private::Chars<54083023890798,t::__private::End>",
            ),
            (
                "a0123456789abcdef",
                "t::__private::Chars<97,\
                 t::__private::Chars<64058384521018188869745042196707698022,t::__private::End>>",
            ),
        ];
        for (given, expected) in texts {
            let written = text(&krate, given).to_string().replace(' ', "");
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn a_place_is_the_same_wherever_it_was_compiled() {
        let cases = [
            ("/home/me/app/src/login.rs", "src/login.rs:7"),
            ("src/login.rs", "src/login.rs:7"),
            ("login.rs", "login.rs:7"),
        ];
        for (file, expected) in cases {
            assert_eq!(Place::new(file, 7).text(), expected);
        }
    }
}
