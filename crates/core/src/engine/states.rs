//! The states of a call, wherever a backend keeps them.

use crate::State;

/// The states of a call's charges, as a backend keeps them.
pub trait States {
    /// The state of charge number `index`. Charges of one scope and key have one state.
    fn state(&mut self, index: usize) -> &mut State;
}

impl States for [State] {
    #[inline]
    fn state(&mut self, index: usize) -> &mut State {
        &mut self[index]
    }
}
