//! Header values with numbers in them, which come back again and again.

use std::cell::RefCell;

use http::HeaderValue;

/// What a value says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Says {
    /// What stands before the numbers. Compared by its address: it lives as long as the process.
    pub(super) what: &'static str,
    pub(super) number: u64,
    pub(super) seconds: u64,
}

/// Values that a thread keeps at hand. An ordinary quota (10/s, 100/min) has fewer than this to say; of an extraordinary
/// one each takes the place of another.
const KEPT: usize = 128;
const KEPT_BITS: u32 = KEPT.trailing_zeros();

thread_local! {
    static RENDERED: RefCell<Vec<Option<Kept>>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Debug)]
struct Kept {
    says: Says,
    /// Only of what was asked for twice: what comes once is not worth the place.
    value: Option<HeaderValue>,
}

/// The value that says so: the one that this thread rendered before, or a new one. A copy of a value costs a tenth of
/// writing its digits, checking them, and finding a place for them.
#[inline]
pub(super) fn rendered(says: Says, render: impl FnOnce(Says) -> HeaderValue) -> HeaderValue {
    let place = says.place();
    let known = RENDERED.try_with(|kept| match kept.borrow().get(place) {
        Some(Some(kept)) if kept.says.is(says) => kept.value.clone(),
        _ => None,
    });
    match known {
        Ok(Some(value)) => value,
        _ => remember(place, says, render),
    }
}

#[inline(never)]
fn remember(place: usize, says: Says, render: impl FnOnce(Says) -> HeaderValue) -> HeaderValue {
    let value = render(says);
    // A thread that ends keeps nothing.
    let _ = RENDERED.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.is_empty() {
            kept.resize(KEPT, None);
        }
        let again = kept[place].as_ref().is_some_and(|kept| kept.says.is(says));
        let value = again.then(|| value.clone());
        kept[place] = Some(Kept { says, value });
    });
    value
}

impl Says {
    #[inline]
    fn is(self, other: Self) -> bool {
        std::ptr::eq(self.what, other.what)
            && self.number == other.number
            && self.seconds == other.seconds
    }

    #[inline]
    fn place(self) -> usize {
        // 2^64 over the golden ratio: its multiples spread over the upper bits.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

        let says = self.number ^ self.seconds.rotate_left(32) ^ self.what.as_ptr().addr() as u64;
        (says.wrapping_mul(SPREAD) >> (u64::BITS - KEPT_BITS)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(says: Says) -> HeaderValue {
        let text = format!("{}{};t={}", says.what, says.number, says.seconds);
        rendered(says, |_| HeaderValue::from_str(&text).unwrap())
    }

    #[test]
    fn a_value_says_what_was_asked_for_whatever_was_asked_before() {
        // given more values than are kept, and in an order in which most push another out
        for round in 0..3 {
            for number in 0..300_u64 {
                for (what, seconds) in [("\"a\";r=", number / 7), ("\"b\";r=", round)] {
                    let says = Says {
                        what,
                        number,
                        seconds,
                    };
                    let expected = format!("{what}{number};t={seconds}");
                    assert_eq!(render(says), expected);
                    assert_eq!(render(says), expected);
                }
            }
        }
    }

    #[test]
    fn a_value_that_was_asked_for_twice_is_not_rendered_again() {
        let says = Says {
            what: "again",
            number: 1,
            seconds: 1,
        };
        render(says);
        render(says);
        let again = rendered(says, |_| panic!("rendered a third time"));
        assert_eq!(again, "again1;t=1");
    }
}
