//! An axum handler, with one argument more.

use syn::spanned::Spanned;
use syn::{Error, FnArg, ItemFn, Result, ReturnType, parse_quote};

use crate::insertion::Insertion;

/// The most arguments that axum takes a handler with.
const MOST_ARGUMENTS: usize = 16;

pub(crate) fn limit(handler: &mut ItemFn, insertion: &Insertion) -> Result<()> {
    check_signature(handler)?;
    let Insertion {
        krate,
        limits,
        checks,
    } = insertion;
    let argument: FnArg = parse_quote!(_: #krate::Guard<#limits>);
    handler.sig.inputs.insert(0, argument);
    handler.block.stmts.splice(..0, checks.iter().cloned());
    Ok(())
}

fn check_signature(handler: &ItemFn) -> Result<()> {
    let signature = &handler.sig;
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
