//! For Tollgate's own counts: denials that are known without a server.

use tollgate_core::{Call, Charge, State, Timestamp, decide};

use crate::RedisBackend;
use crate::known::ToldStates;
use crate::sync::Instant;

impl RedisBackend {
    /// Knows for an hour that nothing is left of a budget, as if a server had said so. Its time stands still.
    #[doc(hidden)]
    pub fn knows(&self, charge: &Charge<'_>) {
        let mut states = [State::full(charge.quota)];
        let at = Timestamp::from_micros(1_700_000_000_000_000);
        let mut decision = decide(at, Call::of(&[*charge]), &mut states[..]);
        while decision.is_admitted() {
            decision = decide(at, Call::of(&[*charge]), &mut states[..]);
        }
        let later = Instant::now() + std::time::Duration::from_secs(3_600);
        let mut call = self.known().departs();
        call.sent_at = later;
        let told = ToldStates {
            at,
            received_at: later,
            slot: 0,
        };
        for _ in 0..2 {
            let charge = [*charge].into_iter();
            let known = self.known();
            known.learn_from(call, told, charge, &decision, |_| states.first());
        }
    }
}
