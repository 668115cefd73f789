//! The content of an annotation, as a type. A handler can only be given an argument, so everything stands in the argument's type:
//! texts as a list of numbers, and the key as itself.

use std::marker::PhantomData;

use tollgate_core::{Ban, Quota};
use tollgate_limiter::key::{Header, KeyExtractor};

use super::rule::{OwnPolicy, Rule};

/// Only the types matter. No value of them is ever made.
type Phantom<T> = PhantomData<fn() -> T>;

/// 16 bytes of text, the first in the highest bits, and the text that follows them. Fewer stand in the lower bits.
#[derive(Debug)]
pub struct Chars<const BYTES: u128, Rest>(Phantom<Rest>);

/// The end of a text.
#[derive(Debug)]
pub struct End;

/// A text that is a type.
pub trait Text: 'static {
    /// Adds the text to `bytes`.
    fn write(bytes: &mut Vec<u8>);
}

impl<const BYTES: u128, Rest: Text> Text for Chars<BYTES, Rest> {
    fn write(bytes: &mut Vec<u8>) {
        let chunk = BYTES.to_be_bytes();
        let start = chunk.iter().position(|byte| *byte != 0);
        bytes.extend_from_slice(
            chunk
                .get(start.unwrap_or(chunk.len())..)
                .unwrap_or_default(),
        );
        Rest::write(bytes);
    }
}

impl Text for End {
    fn write(_: &mut Vec<u8>) {}
}

fn text<T: Text>() -> String {
    let mut bytes = Vec::new();
    T::write(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A text, or none.
pub trait MaybeText: 'static {
    /// The text.
    fn get() -> Option<String>;
}

impl MaybeText for () {
    fn get() -> Option<String> {
        None
    }
}

impl<const BYTES: u128, Rest: Text> MaybeText for Chars<BYTES, Rest> {
    fn get() -> Option<String> {
        Some(text::<Self>())
    }
}

/// The cost of a request.
#[derive(Debug)]
pub struct Cost<const COST: u64>;

/// The usual cost of a request: 1, or the policy's.
#[derive(Debug)]
pub struct UsualCost;

/// A cost, or none.
pub trait MaybeCost: 'static {
    /// The cost.
    const COST: Option<u64>;
}

impl<const COST: u64> MaybeCost for Cost<COST> {
    const COST: Option<u64> = Some(COST);
}

impl MaybeCost for UsualCost {
    const COST: Option<u64> = None;
}

/// The limits of a handler.
pub trait Limits: 'static {
    /// The name of the handler.
    fn handler() -> String;
    /// The place of its annotation in the source.
    fn place() -> String;
    /// The limits.
    fn rules() -> Vec<Rule>;
}

/// A handler of this name, in this place, with this list of limits.
#[derive(Debug)]
pub struct Handler<Name, Place, List>(Phantom<(Name, Place, List)>);

impl<Name: Text, Place: Text, List: Rules> Limits for Handler<Name, Place, List> {
    fn handler() -> String {
        text::<Name>()
    }

    fn place() -> String {
        text::<Place>()
    }

    fn rules() -> Vec<Rule> {
        let mut rules = Vec::new();
        List::add_to(&mut rules);
        rules
    }
}

/// A list of limits.
pub trait Rules: 'static {
    /// Adds them.
    fn add_to(rules: &mut Vec<Rule>);
}

impl Rules for () {
    fn add_to(_: &mut Vec<Rule>) {}
}

impl<First: IsRule, Rest: Rules> Rules for (First, Rest) {
    fn add_to(rules: &mut Vec<Rule>) {
        rules.push(First::rule());
        Rest::add_to(rules);
    }
}

/// A limit that is a type.
pub trait IsRule: 'static {
    /// The limit.
    fn rule() -> Rule;
}

/// A limit with a quota of its own.
#[derive(Debug)]
pub struct Inline<Quota, Name, Key, Cost, Ban, OnceBy, const SHADOW: bool>(
    Phantom<(Quota, Name, Key, Cost, Ban, OnceBy)>,
);

impl<Q, Name, Key, Cost, B, OnceBy, const SHADOW: bool> IsRule
    for Inline<Q, Name, Key, Cost, B, OnceBy, SHADOW>
where
    B: MaybeText,
    OnceBy: MaybeText,
    Q: Text,
    Name: MaybeText,
    Key: AnnotationKey,
    Cost: MaybeCost,
{
    fn rule() -> Rule {
        Rule::Inline(OwnPolicy {
            quotas: Quota::parse_all(&text::<Q>()).unwrap_or_default(),
            name: Name::get(),
            finish: |policy| {
                let mut policy = policy.key(Key::default()).cost(Cost::COST.unwrap_or(1));
                // The macro has read both before.
                if let Some(ban) = B::get().and_then(|text| text.parse::<Ban>().ok()) {
                    policy = policy.ban(ban);
                }
                if let Some(id) = OnceBy::get().and_then(|name| Header::try_new(&name).ok()) {
                    policy = policy.once_by(id);
                }
                if SHADOW { policy.shadow() } else { policy }
            },
        })
    }
}

/// A limit that is a policy of the limiter.
#[derive(Debug)]
pub struct Named<Policy, Cost>(Phantom<(Policy, Cost)>);

impl<P: Text, Cost: MaybeCost> IsRule for Named<P, Cost> {
    fn rule() -> Rule {
        Rule::Named {
            policy: text::<P>(),
            cost: Cost::COST,
        }
    }
}

/// A key that an annotation can name: one that a type alone makes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of an annotation",
    label = "must implement `KeyExtractor` and `Default`",
    note = "an annotation's key is a type such as `ClientIp`, a tuple of such, or one of yours that implements \
            `KeyExtractor` and `Default`",
    note = "a key that has to be made (`Header::new(..)`), or that reads the body (`JsonField::new(..)`, which needs a \
            `BufferBodyLayer`), belongs to a policy of the limiter: `#[rate_limit(policy = \"..\")]`"
)]
pub trait AnnotationKey: KeyExtractor + Default {}

#[diagnostic::do_not_recommend]
impl<K: KeyExtractor + Default> AnnotationKey for K {}

/// Compiles for every type that can be the key of an annotation.
pub fn is_key<K: AnnotationKey>() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_back_from_its_type() {
        // "10/min" and "sixteen bytes it" in one number each
        type Short = Chars<0x3130_2f6d_696e, End>;
        type Sixteen = Chars<0x7369_7874_6565_6e20_6279_7465_7320_6974, End>;
        type Long = Chars<0x3130_2f6d_696e, Sixteen>;

        assert_eq!(text::<End>(), "");
        assert_eq!(text::<Short>(), "10/min");
        assert_eq!(text::<Long>(), "10/minsixteen bytes it");
    }
}
