//! The function, limited.

use std::iter;

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::spanned::Spanned;
use syn::{Attribute, Error, ItemFn, Meta, Result, parse2};

use crate::arguments::Arguments;
use crate::insertion::Insertion;
use crate::limit::Limit;
use crate::text::Place;
use crate::{handler, method};

pub(crate) fn rate_limit(arguments: TokenStream, item: &TokenStream, place: &Place) -> TokenStream {
    let Ok(mut function) = parse2::<ItemFn>(item.clone()) else {
        let error = Error::new(
            Span::call_site(),
            "`rate_limit` stands on axum handlers and on the methods of gRPC services, which are functions",
        );
        let error = error.into_compile_error();
        return quote!(#error #item);
    };
    let below = take_annotations(&mut function.attrs);
    // An error in the annotation should not make the function unknown as well.
    let error = match limits(arguments, &below).and_then(|limits| {
        let insertion = Insertion::new(&limits, &function.sig.ident, place)?;
        match function.sig.receiver() {
            Some(_) => method::limit(&mut function, &insertion),
            None => handler::limit(&mut function, &insertion),
        }
    }) {
        Ok(()) => TokenStream::new(),
        Err(error) => error.into_compile_error(),
    };
    quote!(#error #function)
}

/// Several annotations are one decision, so the first one that is expanded takes the others along.
fn take_annotations(attributes: &mut Vec<Attribute>) -> Vec<Attribute> {
    let is_annotation = |attribute: &Attribute| {
        let last = attribute.path().segments.last();
        last.is_some_and(|segment| segment.ident == "rate_limit")
    };
    attributes
        .extract_if(.., |attribute| is_annotation(attribute))
        .collect()
}

fn limits(first: TokenStream, below: &[Attribute]) -> Result<Vec<Limit>> {
    let first = Limit::new(parse2(first)?, Span::call_site());
    let others = below.iter().map(|attribute| {
        let arguments = match &attribute.meta {
            Meta::Path(_) => Arguments::default(),
            _ => attribute.parse_args()?,
        };
        Limit::new(arguments, attribute.span())
    });
    iter::once(first).chain(others).collect()
}
