//! The words that are written into a function, be it a handler or a method.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Ident, Path, Result, Stmt, parse_quote, parse2};

use crate::limit::{Limit, Rule};
use crate::text::{Place, text};

/// An insertion is what is written into a function.
pub(crate) struct Insertion {
    /// The path of `tollgate`.
    pub(crate) krate: Path,
    /// The type that states the limits.
    pub(crate) limits: TokenStream,
    /// Makes the compiler report a wrong key at the key, and not at the function.
    pub(crate) checks: Vec<Stmt>,
}

impl Insertion {
    pub(crate) fn new(limits: &[Limit], function: &Ident, place: &Place) -> Result<Self> {
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
            ban,
            once_by,
            shadow,
        } => {
            let quotas: Vec<_> = quotas.iter().map(ToString::to_string).collect();
            let quota = text(krate, &quotas.join("; "));
            let maybe_text =
                |it: &Option<String>| it.as_ref().map_or_else(|| quote!(()), |it| text(krate, it));
            let [name, ban, once_by] = [name, ban, once_by].map(maybe_text);
            let key = key
                .as_ref()
                .map_or_else(|| quote!(#krate::ClientIp), ToTokens::to_token_stream);
            quote!(#private::Inline<#quota, #name, #key, #cost, #ban, #once_by, #shadow>)
        }
    }
}
