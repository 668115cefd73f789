//! Requests of one byte each: their verb.

use redis::Value;
use smallvec::SmallVec;
use tollgate_core::{
    BackendError, Call, Charge, Decision, Key, Mode, Quota, Receipt, Scope, State, Timestamp,
    decide,
};

pub(crate) const MAX_KEYS: usize = 255;

pub(crate) const DECIDE: u8 = b'd';
pub(crate) const CREDIT: u8 = b'c';
/// For a request without a charge, which only asks for an answer.
pub(crate) const NOTHING: u8 = b'n';

#[derive(Debug)]
pub(crate) struct OwnedCharge {
    scope: Scope,
    quota: Quota,
    key: Key,
}

impl OwnedCharge {
    pub(crate) fn borrow(&self) -> Charge<'_> {
        Charge {
            scope: self.scope,
            quota: &self.quota,
            key: &self.key,
            cost: 1,
            mode: Mode::Enforce,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Work {
    Decide(SmallVec<[OwnedCharge; 2]>),
    Credit(Receipt, u64),
}

impl Work {
    pub(crate) fn charges(&self) -> Option<&[OwnedCharge]> {
        match self {
            Self::Decide(charges) => Some(charges),
            Self::Credit(..) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) work: Work,
    pub(crate) names: SmallVec<[Vec<u8>; 2]>,
}

impl Request {
    /// Nothing is known here, so that none waits for another's answer.
    #[expect(clippy::unused_self, reason = "the product's requests may have a turn")]
    pub(crate) fn has_turn(&self) -> bool {
        false
    }

    pub(crate) fn nothing() -> Self {
        Self {
            work: Work::Decide(SmallVec::new()),
            names: SmallVec::new(),
        }
    }

    /// A request for one unit of a budget that never runs out.
    pub(crate) fn take_one() -> Self {
        let quota = Quota::per_hour(1_000);
        let charge = OwnedCharge {
            scope: Scope::of("model", 0, &quota),
            quota,
            key: Key::from("alice"),
        };
        Self {
            work: Work::Decide([charge].into_iter().collect()),
            names: [b"alice".to_vec()].into_iter().collect(),
        }
    }

    /// A request that gives that unit back.
    pub(crate) fn give_back() -> Self {
        let take = Self::take_one();
        let Work::Decide(charges) = &take.work else {
            unreachable!("it takes one");
        };
        let receipt = decided(charges).receipts(&[charges[0].borrow()]).next();
        Self {
            work: Work::Credit(receipt.unwrap(), 1),
            names: take.names,
        }
    }

    pub(crate) fn credit(receipt: Receipt, n: u64, name: Vec<u8>, id: Option<Vec<u8>>) -> Self {
        Self {
            work: Work::Credit(receipt, n),
            names: [name].into_iter().chain(id).collect(),
        }
    }

    pub(crate) fn long_states(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn weight(&self) -> usize {
        1
    }

    /// Decisions leave in another call than the rest of their batch.
    pub(crate) fn shape(&self) -> Option<u8> {
        (self.verb() == DECIDE).then_some(DECIDE)
    }

    fn verb(&self) -> u8 {
        match &self.work {
            Work::Decide(charges) if charges.is_empty() => NOTHING,
            Work::Decide(_) => DECIDE,
            Work::Credit(..) => CREDIT,
        }
    }
}

fn decided(charges: &[OwnedCharge]) -> Decision {
    let charges: Vec<_> = charges.iter().map(OwnedCharge::borrow).collect();
    let mut states: Vec<_> = charges
        .iter()
        .map(|charge| State::full(charge.quota))
        .collect();
    decide(
        Timestamp::from_micros(1 << 50),
        Call::of(&charges),
        &mut states[..],
    )
}

pub(crate) struct Plan;

pub(crate) struct ScriptCall<'a> {
    pub(crate) keys: Vec<&'a [u8]>,
    pub(crate) runs: Vec<Vec<u8>>,
}

impl ScriptCall<'_> {
    pub(crate) fn is_of(&mut self, caller: &(), _places: &[u16]) {
        let () = caller;
    }
}

impl Plan {
    pub(crate) fn key(&self, _request: usize, _charge: usize) -> Option<usize> {
        None
    }

    pub(crate) fn of<'a>(
        requests: impl IntoIterator<Item = &'a Request>,
    ) -> (Self, ScriptCall<'a>) {
        let verbs = requests.into_iter().map(Request::verb).collect();
        let call = ScriptCall {
            keys: Vec::new(),
            runs: vec![verbs],
        };
        (Self, call)
    }
}

/// The number of requests that were done.
pub(crate) struct Reply(usize);

impl Reply {
    pub(crate) fn parse(value: Value) -> Option<Self> {
        match value {
            Value::Int(done) => usize::try_from(done).ok().map(Self),
            _ => None,
        }
    }
}

/// There are no states.
pub(crate) struct LeftStates<'s, 'a>(std::marker::PhantomData<(&'s (), &'a ())>);

pub(crate) type Outcome = Result<Option<Decision>, BackendError>;

pub(crate) fn replay<'a>(
    reply: &Reply,
    _plan: &Plan,
    _keys: usize,
    request: impl Fn(usize) -> &'a Request,
    _learn: impl FnMut(usize, &Decision, &LeftStates<'_, '_>),
) -> Result<Vec<(usize, Outcome)>, BackendError> {
    let outcome = |position| match &request(position).work {
        Work::Decide(charges) => Ok(Some(decided(charges))),
        Work::Credit(..) => Ok(None),
    };
    let positions = 0..reply.0;
    Ok(positions
        .map(|position| (position, outcome(position)))
        .collect())
}

pub(crate) fn held_by_caller(_reply: &Reply, _keys: usize) -> Vec<Option<()>> {
    Vec::new()
}
