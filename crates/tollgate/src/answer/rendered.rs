//! Headers with numbers in them, which come back again and again.

use std::cell::RefCell;
use std::mem;
use std::thread::LocalKey;

use http::{HeaderMap, HeaderValue};

/// What a value, or a map of headers, says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Says {
    pub(super) about: About,
    pub(super) number: u64,
    pub(super) seconds: u64,
}

/// What numbers are about: something that lives as long as the process, known by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct About(usize);

impl About {
    #[inline]
    pub(super) fn of<T: ?Sized>(what: &'static T) -> Self {
        Self(std::ptr::from_ref(what).addr())
    }
}

/// So much of each kind a thread keeps at hand. An ordinary quota (10/s, 100/min) has fewer than this to say; of an
/// extraordinary one each takes the place of another.
const KEPT: usize = 128;
const KEPT_BITS: u32 = KEPT.trailing_zeros();

/// What is asked for less often is not worth the copy.
const OFTEN: u8 = 3;

type Memory<T> = RefCell<Vec<Kept<T>>>;

thread_local! {
    static VALUES: Memory<HeaderValue> = const { RefCell::new(Vec::new()) };
    static MAPS: Memory<HeaderMap> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
struct Kept<T> {
    says: Says,
    /// How often that was asked for, and nothing else in between.
    times: u8,
    rendered: Option<T>,
}

/// The value that says so: the one that this thread rendered before, or a new one. A copy of a value costs a tenth of
/// writing its digits, checking them, and finding a place for them.
#[inline]
pub(super) fn rendered(says: Says, render: impl FnOnce() -> HeaderValue) -> HeaderValue {
    let mut value = HeaderValue::from_static("");
    recall(
        &VALUES,
        says,
        &mut value,
        HeaderValue::clone_from,
        |value| {
            *value = render();
        },
    );
    value
}

/// Makes `headers` those that say so: a copy of what this thread rendered before, or what `render` makes of them.
#[inline]
pub(super) fn render_headers(
    headers: &mut HeaderMap,
    says: Says,
    render: impl FnOnce(&mut HeaderMap),
) {
    recall(&MAPS, says, headers, copy_headers, render);
}

/// Makes `headers` a copy of others.
#[inline(always)]
pub(super) fn copy_headers(headers: &mut HeaderMap, others: &HeaderMap) {
    let copy = others.clone();
    if headers.capacity() > 0 {
        *headers = copy;
        return;
    }
    let nothing = mem::replace(headers, copy);
    #[expect(
        clippy::mem_forget,
        reason = "what has no room holds nothing: nobody has to look for what is to be dropped"
    )]
    mem::forget(nothing);
}

/// What is large is written where it is wanted, not moved there.
#[inline]
fn recall<T: Clone>(
    memory: &'static LocalKey<Memory<T>>,
    says: Says,
    into: &mut T,
    copy: impl FnOnce(&mut T, &T),
    render: impl FnOnce(&mut T),
) {
    let place = says.place();
    let is_known = memory.try_with(|kept| match kept.borrow().get(place) {
        Some(kept) if kept.says == says => match &kept.rendered {
            Some(rendered) => {
                copy(into, rendered);
                true
            }
            None => false,
        },
        _ => false,
    });
    if is_known != Ok(true) {
        render(into);
        remember(memory, place, says, into);
    }
}

#[inline(never)]
fn remember<T: Clone>(
    memory: &'static LocalKey<Memory<T>>,
    place: usize,
    says: Says,
    rendered: &T,
) {
    // A thread that ends keeps nothing.
    let _ = memory.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.is_empty() {
            kept.resize_with(KEPT, || Kept {
                says: Says::NOTHING,
                times: 0,
                rendered: None,
            });
        }
        let kept = &mut kept[place];
        if kept.says == says {
            kept.times += 1;
        } else {
            (kept.says, kept.times) = (says, 1);
        }
        // Once it is kept, nobody comes here for it.
        kept.rendered = (kept.times == OFTEN).then(|| rendered.clone());
    });
}

impl Says {
    /// Nothing lives there.
    const NOTHING: Self = Self {
        about: About(0),
        number: 0,
        seconds: 0,
    };

    #[inline]
    fn place(self) -> usize {
        // 2^64 over the golden ratio: its multiples spread over the upper bits.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

        let says = self.number ^ self.seconds.rotate_left(32) ^ self.about.0 as u64;
        (says.wrapping_mul(SPREAD) >> (u64::BITS - KEPT_BITS)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(what: &'static str, number: u64, seconds: u64) -> Says {
        Says {
            about: About::of(what),
            number,
            seconds,
        }
    }

    fn render(what: &'static str, number: u64, seconds: u64) -> HeaderValue {
        let text = format!("{what}{number};t={seconds}");
        rendered(says(what, number, seconds), || {
            HeaderValue::from_str(&text).unwrap()
        })
    }

    #[test]
    fn a_value_says_what_was_asked_for_whatever_was_asked_before() {
        // given more values than are kept, and in an order in which most push another out
        for round in 0..3 {
            for number in 0..300_u64 {
                for (what, seconds) in [("\"a\";r=", number / 7), ("\"b\";r=", round)] {
                    let expected = format!("{what}{number};t={seconds}");
                    for _ in 0..=OFTEN {
                        assert_eq!(render(what, number, seconds), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn a_value_that_was_asked_for_often_is_not_rendered_again() {
        for _ in 0..OFTEN {
            render("again", 1, 1);
        }
        let again = rendered(says("again", 1, 1), || panic!("rendered once more"));
        assert_eq!(again, "again1;t=1");
    }
}
