//! A method of a gRPC service, which asks the limiter first.
//!
//! `async_trait` has expanded before: it turns an `async fn` into a function that returns a boxed future.

use std::mem;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Error, FnArg, Ident, ItemFn, Pat, Result, ReturnType, Type, parse_quote};

use crate::insertion::Insertion;

pub(crate) fn limit(method: &mut ItemFn, insertion: &Insertion) -> Result<()> {
    if method.sig.asyncness.is_none() && matches!(method.sig.output, ReturnType::Default) {
        return Err(Error::new(
            method.sig.fn_token.span(),
            "a method is an `async fn`, or returns a future",
        ));
    }
    // The request has this name until it is let in, and then the one that the method gives it.
    let request = Ident::new("request", Span::mixed_site());
    let (pattern, kind) = take_request(method, &request)?;
    let Insertion {
        krate,
        limits,
        checks,
    } = insertion;
    let private = quote!(#krate::__private);
    let enter = quote!(enter::<#limits, #kind>(#request).await);
    let block = &method.block;
    method.block = if method.sig.asyncness.is_some() {
        let statements = &block.stmts;
        parse_quote!({
            #(#checks)*
            let #pattern: #kind = match #private::#enter {
                ::core::result::Result::Ok(request) => request,
                ::core::result::Result::Err(status) => {
                    return ::core::result::Result::Err(::core::convert::Into::into(status));
                }
            };
            #(#statements)*
        })
    } else {
        let future = ReturnedFuture::of(&method.sig.output);
        let output = &future.annotation;
        let entered = quote! {
            async move {
                match #private::#enter {
                    // A closure, so that the method may return from wherever it likes.
                    ::core::result::Result::Ok(request) => {
                        (move |#pattern: #kind| #output #block)(request).await
                    }
                    ::core::result::Result::Err(status) => {
                        ::core::result::Result::Err(::core::convert::Into::into(status))
                    }
                }
            }
        };
        let future = future.make(&entered);
        parse_quote!({
            #(#checks)*
            #future
        })
    };
    Ok(())
}

/// The name and the type of the method's request.
fn take_request(method: &mut ItemFn, name: &Ident) -> Result<(Pat, Type)> {
    let place = method.sig.ident.span();
    let mut arguments = method.sig.inputs.iter_mut().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(FnArg::Typed(request)), None) => {
            let pattern = mem::replace(&mut *request.pat, parse_quote!(#name));
            Ok((pattern, (*request.ty).clone()))
        }
        _ => Err(Error::new(
            place,
            "a function with `self` is a method of a gRPC service, which takes a `tonic::Request` and nothing else; an axum \
             handler has no `self`: it takes `State`",
        )),
    }
}

/// The return type of a method that is not an `async fn`.
struct ReturnedFuture {
    /// The type as a closure can state it; `None` if it has no name.
    annotation: TokenStream,
    boxed: bool,
}

impl ReturnedFuture {
    fn of(output: &ReturnType) -> Self {
        match output {
            ReturnType::Type(_, kind) if matches!(**kind, Type::ImplTrait(_)) => Self {
                annotation: TokenStream::new(),
                boxed: false,
            },
            _ => Self {
                annotation: output.to_token_stream(),
                boxed: true,
            },
        }
    }

    fn make(&self, future: &TokenStream) -> TokenStream {
        if self.boxed {
            quote!(::std::boxed::Box::pin(#future))
        } else {
            future.clone()
        }
    }
}
