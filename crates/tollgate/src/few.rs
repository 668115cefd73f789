//! A list that nearly always has one element.

use std::{mem, slice};

/// One, where it stands, or several. As a `SmallVec` of one it would be the same to whoever reads it; writing the usual one
/// takes half as much.
#[derive(Clone, Debug)]
pub(crate) enum Few<T> {
    One(T),
    /// None is several as well.
    Several(Vec<T>),
}

impl<T> Few<T> {
    /// None.
    pub(crate) const NONE: Self = Self::Several(Vec::new());

    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => slice::from_ref(one),
            Self::Several(several) => several,
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::One(one) => slice::from_mut(one),
            Self::Several(several) => several,
        }
    }

    /// The usual one, where it stands.
    #[inline]
    pub(crate) fn one_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::One(one) => Some(one),
            Self::Several(_) => None,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, element: T) {
        match self {
            Self::Several(several) if several.capacity() == 0 => *self = Self::One(element),
            _ => self.push_further(element),
        }
    }

    #[inline(never)]
    fn push_further(&mut self, element: T) {
        let mut several = mem::take(self).into_several();
        several.push(element);
        *self = Self::Several(several);
    }

    pub(crate) fn extend(&mut self, further: Self) {
        match further {
            Self::One(element) => self.push(element),
            Self::Several(further) => {
                let mut several = mem::take(self).into_several();
                several.extend(further);
                *self = Self::Several(several);
            }
        }
    }

    fn into_several(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Several(several) => several,
        }
    }
}

impl<T> Default for Few<T> {
    #[inline]
    fn default() -> Self {
        Self::NONE
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Self::Several(elements.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_a_list_would() {
        // given lists of every small size, pushed one by one and in two halves
        for first in 0..4 {
            for then in 0..4 {
                let all: Vec<_> = (0..first + then).collect();
                let mut pushed = Few::default();
                all.iter().for_each(|element| pushed.push(*element));
                let mut joined: Few<_> = (0..first).collect();
                let mut half = Few::default();
                (first..first + then).for_each(|element| half.push(element));
                joined.extend(half);

                assert_eq!((pushed.as_slice(), joined.as_slice()), (&all[..], &all[..]));
            }
        }
    }
}
