//! Texts as types: the compiler takes no text as a parameter of a type, but it takes numbers, and a number of 128 bits is 16
//! bytes of text.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Path;

/// Where an annotation stands, to tell two handlers of one name apart, and to be found by whoever reads a log.
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) line: usize,
}

impl Place {
    pub(crate) fn text(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// The type that says `text`.
pub(crate) fn text(krate: &Path, text: &str) -> TokenStream {
    let end = quote!(#krate::__private::End);
    text.as_bytes().rchunks(16).fold(end, |rest, bytes| {
        let number = bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u128::from(*byte));
        quote!(#krate::__private::Chars<#number, #rest>)
    })
}
