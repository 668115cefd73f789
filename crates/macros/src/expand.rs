//! The handler, with one argument more.

use std::iter;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Error, FnArg, ItemFn, Meta, Path, Result, ReturnType, parse_quote, parse2};

use crate::arguments::Arguments;
use crate::limit::{Limit, Rule};
use crate::text::{Place, text};

/// The most arguments that axum takes a handler with.
const MOST_ARGUMENTS: usize = 16;

pub(crate) fn rate_limit(arguments: TokenStream, item: &TokenStream, place: &Place) -> TokenStream {
    let Ok(mut handler) = parse2::<ItemFn>(item.clone()) else {
        let error = Error::new(
            Span::call_site(),
            "`rate_limit` stands on axum handlers, which are functions",
        );
        let error = error.into_compile_error();
        return quote!(#error #item);
    };
    let below = take_annotations(&mut handler.attrs);
    // What is wrong with the annotation should not make the handler unknown as well.
    let error = match limits(arguments, &below).and_then(|limits| {
        check_signature(&handler)?;
        guard(&mut handler, &limits, place)
    }) {
        Ok(()) => TokenStream::new(),
        Err(error) => error.into_compile_error(),
    };
    quote!(#error #handler)
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

fn check_signature(handler: &ItemFn) -> Result<()> {
    let signature = &handler.sig;
    if let Some(receiver) = signature.receiver() {
        return Err(Error::new(
            receiver.span(),
            "a method with `self` is no axum handler: take `State` instead",
        ));
    }
    if signature.asyncness.is_none() && matches!(signature.output, ReturnType::Default) {
        return Err(Error::new(
            signature.fn_token.span(),
            "a handler is an `async fn`, or returns a future",
        ));
    }
    match signature.inputs.iter().nth(MOST_ARGUMENTS - 1) {
        Some(last) => Err(Error::new(
            last.span(),
            format!(
                "axum takes handlers of at most {MOST_ARGUMENTS} arguments, of which the limit is one: take several as a tuple"
            ),
        )),
        None => Ok(()),
    }
}

fn guard(handler: &mut ItemFn, limits: &[Limit], place: &Place) -> Result<()> {
    let named = limits.iter().find_map(|limit| limit.krate.clone());
    let krate = named.unwrap_or_else(|| parse_quote!(::tollgate));
    let list = limits.iter().rev().fold(quote!(()), |rest, limit| {
        let limit = limit_type(&krate, limit);
        quote!((#limit, #rest))
    });
    let name = text(&krate, &handler.sig.ident.to_string());
    let place = text(&krate, &place.text());
    let argument: FnArg = parse2(quote! {
        _: #krate::Guard<#krate::__private::Handler<#name, #place, #list>>
    })?;
    handler.sig.inputs.insert(0, argument);
    // Here the compiler says what is wrong with a key at the key. At the router it would say that the handler is none.
    let keys = limits.iter().filter_map(|limit| match &limit.rule {
        Rule::Inline { key: Some(key), .. } => Some(key),
        _ => None,
    });
    let checks = keys.map(|key| {
        let check = quote_spanned!(key.span()=> is_key::<#key>(););
        parse2(quote!(#krate::__private::#check))
    });
    let checks = checks.collect::<Result<Vec<_>>>()?;
    handler.block.stmts.splice(..0, checks);
    Ok(())
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
            quota,
            name,
            key,
            shadow,
        } => {
            let quota = text(krate, &quota.to_string());
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
