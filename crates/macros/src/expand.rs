//! The function, limited.

use std::iter;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Ident, ItemFn, Meta, Path, Result, Stmt, parse_quote, parse2};

use crate::arguments::Arguments;
use crate::limit::{Limit, Rule};
use crate::text::{Place, text};
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
    // What is wrong with the annotation should not make the function unknown as well.
    let error = match limits(arguments, &below).and_then(|limits| {
        let limited = Limited::new(&limits, &function.sig.ident, place)?;
        match function.sig.receiver() {
            Some(_) => method::limit(&mut function, &limited),
            None => handler::limit(&mut function, &limited),
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

/// What is written into a function.
pub(crate) struct Limited {
    /// Where `tollgate` is.
    pub(crate) krate: Path,
    /// The type that says what the limits are.
    pub(crate) limits: TokenStream,
    /// Here the compiler says what is wrong with a key at the key. Elsewhere it would say that the function is wrong.
    pub(crate) checks: Vec<Stmt>,
}

impl Limited {
    fn new(limits: &[Limit], function: &Ident, place: &Place) -> Result<Self> {
        let named = limits.iter().find_map(|limit| limit.krate.clone());
        let krate = named.unwrap_or_else(|| parse_quote!(::tollgate));
        let list = limits.iter().rev().fold(quote!(()), |rest, limit| {
            let limit = limit_type(&krate, limit);
            quote!((#limit, #rest))
        });
        let name = text(&krate, &function.to_string());
        let place = text(&krate, &place.text());
        let keys = limits.iter().filter_map(|limit| match &limit.rule {
            Rule::Inline { key: Some(key), .. } => Some(key),
            _ => None,
        });
        let checks = keys.map(|key| {
            let check = quote_spanned!(key.span()=> is_key::<#key>(););
            parse2(quote!(#krate::__private::#check))
        });
        Ok(Self {
            limits: quote!(#krate::__private::Handler<#name, #place, #list>),
            checks: checks.collect::<Result<_>>()?,
            krate,
        })
    }
}

fn limit_type(krate: &Path, limit: &Limit) -> TokenStream {
    let private = quote!(#krate::__private);
    let cost = match limit.cost {
        Some(cost) => quote!(#private::Cost<#cost>),
        None => quote!(#private::UsualCost),
    };
    match &limit.rule {
        Rule::Policy(name) => {
            let name = text(krate, name);
            quote!(#private::Named<#name, #cost>)
        }
        Rule::Inline {
            quotas,
            name,
            key,
            shadow,
        } => {
            let quotas: Vec<_> = quotas.iter().map(ToString::to_string).collect();
            let quota = text(krate, &quotas.join("; "));
            let name = match name {
                Some(name) => text(krate, name),
                None => quote!(()),
            };
            let key = key
                .as_ref()
                .map_or_else(|| quote!(#krate::ClientIp), ToTokens::to_token_stream);
            quote!(#private::Inline<#quota, #name, #key, #cost, #shadow>)
        }
    }
}
