//! The attribute as it was written.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::discouraged::Speculative;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, LitInt, LitStr, Path, Result, Token, Type};

const KNOWN: &str = "ban, burst, cost, crate, key, name, once_by, policy and shadow";

/// The content of the parentheses: each argument at most once. Nothing else is checked.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) quota: Option<LitStr>,
    pub(crate) ban: Option<Argument<LitStr>>,
    pub(crate) burst: Option<Argument<Number>>,
    pub(crate) cost: Option<Argument<Number>>,
    pub(crate) key: Option<Argument<Type>>,
    pub(crate) name: Option<Argument<LitStr>>,
    pub(crate) once_by: Option<Argument<LitStr>>,
    pub(crate) policy: Option<Argument<LitStr>>,
    pub(crate) shadow: Option<Argument<()>>,
    pub(crate) krate: Option<Argument<Path>>,
}

/// The value of an argument, and where its name stands.
pub(crate) struct Argument<T> {
    pub(crate) span: Span,
    pub(crate) value: T,
}

pub(crate) struct Number {
    pub(crate) span: Span,
    pub(crate) value: u64,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut arguments = Self::default();
        if input.peek(LitStr) {
            arguments.quota = Some(input.parse()?);
            comma(input)?;
        }
        while !input.is_empty() {
            arguments.parse_one(input)?;
            comma(input)?;
        }
        Ok(arguments)
    }
}

impl Arguments {
    fn parse_one(&mut self, input: ParseStream<'_>) -> Result<()> {
        if input.peek(LitStr) {
            return Err(
                input.error("the quota comes first, and there is only one in an annotation")
            );
        }
        if !input.peek(Ident::peek_any) {
            return Err(input.error(format!(
                "expected a quota such as \"10/min\", or one of {KNOWN}"
            )));
        }
        let name = input.call(Ident::parse_any)?;
        match name.to_string().as_str() {
            "ban" => set(&mut self.ban, &name, after_equals(input, text)?),
            "burst" => set(&mut self.burst, &name, after_equals(input, whole_number)?),
            "cost" => set(&mut self.cost, &name, after_equals(input, cost)?),
            "key" => set(&mut self.key, &name, after_equals(input, key)?),
            "name" => set(&mut self.name, &name, after_equals(input, text)?),
            "once_by" => set(&mut self.once_by, &name, after_equals(input, text)?),
            "policy" => set(&mut self.policy, &name, after_equals(input, text)?),
            "crate" => set(&mut self.krate, &name, after_equals(input, path)?),
            "shadow" if input.peek(Token![=]) => {
                Err(input.error("`shadow` stands by itself: it has no value"))
            }
            "shadow" => set(&mut self.shadow, &name, ()),
            _ => Err(Error::new(
                name.span(),
                format!("unknown argument `{name}`: there are {KNOWN}"),
            )),
        }
    }
}

fn set<T>(place: &mut Option<Argument<T>>, name: &Ident, value: T) -> Result<()> {
    if place.is_some() {
        return Err(Error::new(name.span(), format!("`{name}` is given twice")));
    }
    *place = Some(Argument {
        span: name.span(),
        value,
    });
    Ok(())
}

fn comma(input: ParseStream<'_>) -> Result<()> {
    if input.is_empty() {
        return Ok(());
    }
    if !input.peek(Token![,]) {
        return Err(input.error("expected a comma"));
    }
    input.parse::<Token![,]>().map(drop)
}

fn after_equals<T>(input: ParseStream<'_>, value: fn(ParseStream<'_>) -> Result<T>) -> Result<T> {
    input.parse::<Token![=]>()?;
    value(input)
}

fn whole_number(input: ParseStream<'_>) -> Result<Number> {
    const EXPECTED: &str = "expected a whole number";
    if !input.peek(LitInt) {
        return Err(input.error(EXPECTED));
    }
    let literal: LitInt = input.parse()?;
    let value = literal.base10_parse();
    Ok(Number {
        span: literal.span(),
        value: value.map_err(|_| Error::new(literal.span(), EXPECTED))?,
    })
}

fn cost(input: ParseStream<'_>) -> Result<Number> {
    let cost = whole_number(input)?;
    if cost.value == 0 {
        return Err(Error::new(
            cost.span,
            "a cost of 0 limits nothing: to watch without refusing use `shadow`, on a quota or on the policy",
        ));
    }
    Ok(cost)
}

fn text(input: ParseStream<'_>) -> Result<LitStr> {
    if input.peek(LitStr) {
        return input.parse();
    }
    Err(input.error("expected a text in quotes"))
}

fn path(input: ParseStream<'_>) -> Result<Path> {
    input.call(Path::parse_mod_style)
}

/// A type. Users are tempted to write an expression.
fn key(input: ParseStream<'_>) -> Result<Type> {
    let tried = input.fork();
    match tried.parse::<Type>() {
        Ok(key) if tried.is_empty() || tried.peek(Token![,]) => {
            input.advance_to(&tried);
            Ok(key)
        }
        _ => Err(input.error(
            "expected a type that implements `KeyExtractor` and `Default`, such as `ClientIp`; a key that has to be made, \
             such as `Header::new(\"x-api-key\")`, belongs to a policy: `policy = \"..\"`",
        )),
    }
}
