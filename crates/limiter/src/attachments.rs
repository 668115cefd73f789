//! Room for the data that modules further up attach to a value.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

/// Values of other modules, at most one of each type, which live as long as what they are attached to.
///
/// Answers keep what they have rendered with a quota, and annotations their policies with a limiter. Neither is known here, and
/// either would otherwise need a table of its own, which would grow with values that are gone.
#[derive(Default)]
pub struct Attachments(OnceLock<Box<Link>>);

/// One value, and room for those of other types.
struct Link {
    value: Box<dyn Any + Send + Sync>,
    next: Attachments,
}

impl Attachments {
    /// The value of this type. The first call makes it; those that come at the same time wait.
    #[inline]
    pub fn get<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> &T {
        let mut at = self;
        loop {
            let link = at.0.get_or_init(|| {
                Box::new(Link {
                    value: Box::new(make()),
                    next: Self::default(),
                })
            });
            match link.value.downcast_ref() {
                Some(value) => return value,
                None => at = &link.next,
            }
        }
    }
}

impl fmt::Debug for Attachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachments").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn each_type_has_one_value_that_is_made_once() {
        let attached = Attachments::default();
        let made = Cell::new(0);
        let number = || attached.get(|| made.replace(made.get() + 1));
        let text = || attached.get(|| "text".to_owned());

        let (first, other, again): (&i32, &String, &i32) = (number(), text(), number());

        assert_eq!((*first, other.as_str(), *again), (0, "text", 0));
        assert!(std::ptr::eq(first, again) && std::ptr::eq(other, text()));
        assert_eq!(made.get(), 1);
    }
}
