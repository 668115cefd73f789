//! The requests that change what is known of denials: answers that teach it, and corrections that clear it.

use std::slice;
use std::sync::Arc;

use tollgate_core::Decision;

use crate::known::{KnownDenials, KnownPart, SentCall, ToldStates};
use crate::sync::Instant;
use crate::wire::{LeftStates, OwnedCharge, Request, Work};

impl KnownDenials {
    /// Learns from the answer to one request of a call.
    pub(crate) fn learn(
        &self,
        call: SentCall,
        received_at: Instant,
        slot: u16,
        request: &Request,
        decision: &Decision,
        left: &LeftStates<'_, '_>,
    ) {
        let charges = request.work.charges().unwrap_or_default();
        let charges = charges.iter().map(OwnedCharge::borrow);
        let told = ToldStates {
            at: left.at(),
            received_at,
            slot,
        };
        self.learn_from(call, told, charges, decision, |charge| left.state(charge));
        if let Some(KnownPart::Turn(turn)) = &request.known {
            // The request itself lives until its caller reads the answer.
            turn.end();
        }
    }

    /// Begins the event of a request that corrects charges. It ends with the request.
    pub(crate) fn owes(self: &Arc<Self>, request: Request) -> Request {
        let known = {
            let corrected = match &request.work {
                Work::Credit(receipt, _) | Work::Debit(receipt, _) => slice::from_ref(receipt),
                Work::Decide(..) | Work::Reset(_) | Work::Tell(_) => &[],
            };
            let event = self.begins(corrected.iter().map(|it| (it.scope(), it.key())));
            event.map(KnownPart::Event)
        };
        Request { known, ..request }
    }
}
