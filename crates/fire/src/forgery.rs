//! The deliberate defects of a script, and the words that make them.

use crate::Result;

/// The defect of the script. The first five act in about one of twenty calls, and the others always, because their cases are
/// rare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// Decisions are not written.
    SkipWrite,
    /// Decisions are written twice.
    DoubleCharge,
    /// Another key's state is read.
    Neighbour,
    /// An existing state is not seen.
    ForgetState,
    /// Written states never expire.
    ForgetExpiry,
    /// A denied request keeps the charges that fitted.
    TakeInPart,
    /// Shadow charges are not taken.
    SkipShadow,
    /// A probe takes its cost.
    ProbeTakes,
    /// Credits are done twice.
    CreditTwice,
    /// Credits are not done.
    CreditLost,
    /// Debits are not done.
    DebitLost,
    /// A reset says that it is done, and did nothing.
    ResetIdle,
    /// One more may be held than there are places.
    HeldOneMore,
    /// An acquire is not counted.
    HeldUncounted,
    /// A release is done twice.
    ReleaseTwice,
    /// A telling does nothing.
    TellIdle,
    /// Entries whose leases have run out stay.
    SweepNothing,
    /// Entries go a lease before their time.
    SweepLiving,
    /// A charge that leaves before its turn moves up the requests behind it.
    LeaverMovesUp,
    /// A credit moves others up while a request waits.
    CreditMovesUp,
    /// A turn is promised and not kept.
    TurnUnkept,
    /// The place of a request that left is given out twice.
    GapTwice,
    /// A request takes the place of one that left, and does not fit into it.
    GapTooSmall,
    /// A turn comes earlier than those before it allow.
    TurnEarly,
    /// A request that its caller's patience refuses is taken.
    RefusedTaken,
    /// A request waits for half as long as it may.
    PatienceHalved,
    /// A ban lasts for half of its time.
    BanShort,
    /// Each request of a banned caller begins the ban anew.
    BanFedByItself,
    /// A ban begins one strike too early.
    BanOneStrikeFewer,
    /// A ban begins one strike too late.
    BanOneStrikeMore,
    /// No ban lasts longer than the one before.
    BanNeverDoubles,
    /// A ban by hand ends a longer one.
    ByHandShortens,
    /// Requests of banned callers are charged.
    BannedCharged,
    /// A refill in intervals comes twice at the start of each period.
    RefillTwice,
    /// A day never ends.
    DayEndless,
    /// The admissions of a day are counted twice.
    DayCountedTwice,
    /// An id passes uncharged for ever.
    OnceForEver,
    /// An id passes uncharged once more than its replays say.
    OnceOneMore,
    /// A request whose id is remembered is charged all the same.
    OnceForgotten,
    /// An id lives for half of its time.
    OnceShort,
    /// A replay takes from the budget, and says that it took nothing.
    OnceTakes,
    /// An id whose charge is given back stays remembered.
    OnceKept,
    /// A cold budget costs no more than a warm one.
    NeverCold,
    /// Idle time comes to the store twice.
    ColdTooSoon,
    /// A state that a quota of another rate has left ahead counts as empty.
    ReplacedAnew,
    /// One more is taken than was granted.
    GrantOneMore,
    /// One fewer is taken than was granted.
    GrantOneFewer,
    /// Less than the least is taken.
    GrantBelowLeast,
}

impl Forgery {
    /// All defects.
    pub const ALL: [Self; 48] = [
        Self::SkipWrite,
        Self::DoubleCharge,
        Self::Neighbour,
        Self::ForgetState,
        Self::ForgetExpiry,
        Self::TakeInPart,
        Self::SkipShadow,
        Self::ProbeTakes,
        Self::CreditTwice,
        Self::CreditLost,
        Self::DebitLost,
        Self::ResetIdle,
        Self::HeldOneMore,
        Self::HeldUncounted,
        Self::ReleaseTwice,
        Self::TellIdle,
        Self::SweepNothing,
        Self::SweepLiving,
        Self::LeaverMovesUp,
        Self::CreditMovesUp,
        Self::TurnUnkept,
        Self::GapTwice,
        Self::GapTooSmall,
        Self::TurnEarly,
        Self::RefusedTaken,
        Self::PatienceHalved,
        Self::BanShort,
        Self::BanFedByItself,
        Self::BanOneStrikeFewer,
        Self::BanOneStrikeMore,
        Self::BanNeverDoubles,
        Self::ByHandShortens,
        Self::BannedCharged,
        Self::RefillTwice,
        Self::DayEndless,
        Self::DayCountedTwice,
        Self::OnceForEver,
        Self::OnceOneMore,
        Self::OnceForgotten,
        Self::OnceShort,
        Self::OnceTakes,
        Self::OnceKept,
        Self::NeverCold,
        Self::ColdTooSoon,
        Self::ReplacedAnew,
        Self::GrantOneMore,
        Self::GrantOneFewer,
        Self::GrantBelowLeast,
    ];

    /// True if it shows only after a lease, in a run without faults but the death of a client.
    #[must_use]
    pub fn takes_a_lease(self) -> bool {
        matches!(
            self,
            Self::TellIdle | Self::SweepNothing | Self::SweepLiving
        )
    }

    /// True if it shows only after a midnight of the servers' clock, in a run in which that can be set.
    #[must_use]
    pub fn takes_a_midnight(self) -> bool {
        self == Self::DayEndless
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SkipWrite => "skip-write",
            Self::DoubleCharge => "double-charge",
            Self::Neighbour => "neighbour",
            Self::ForgetState => "forget-state",
            Self::ForgetExpiry => "forget-expiry",
            Self::TakeInPart => "take-in-part",
            Self::SkipShadow => "skip-shadow",
            Self::ProbeTakes => "probe-takes",
            Self::CreditTwice => "credit-twice",
            Self::CreditLost => "credit-lost",
            Self::DebitLost => "debit-lost",
            Self::ResetIdle => "reset-idle",
            Self::HeldOneMore => "held-one-more",
            Self::HeldUncounted => "held-uncounted",
            Self::ReleaseTwice => "release-twice",
            Self::TellIdle => "tell-idle",
            Self::SweepNothing => "sweep-nothing",
            Self::SweepLiving => "sweep-living",
            Self::LeaverMovesUp => "leaver-moves-up",
            Self::CreditMovesUp => "credit-moves-up",
            Self::TurnUnkept => "turn-unkept",
            Self::GapTwice => "gap-twice",
            Self::GapTooSmall => "gap-too-small",
            Self::TurnEarly => "turn-early",
            Self::RefusedTaken => "refused-taken",
            Self::PatienceHalved => "patience-halved",
            Self::BanShort => "ban-short",
            Self::BanFedByItself => "ban-fed-by-itself",
            Self::BanOneStrikeFewer => "ban-one-strike-fewer",
            Self::BanOneStrikeMore => "ban-one-strike-more",
            Self::BanNeverDoubles => "ban-never-doubles",
            Self::ByHandShortens => "by-hand-shortens",
            Self::BannedCharged => "banned-charged",
            Self::RefillTwice => "refill-twice",
            Self::DayEndless => "day-endless",
            Self::DayCountedTwice => "day-counted-twice",
            Self::OnceForEver => "once-for-ever",
            Self::OnceOneMore => "once-one-more",
            Self::OnceForgotten => "once-forgotten",
            Self::OnceShort => "once-short",
            Self::OnceTakes => "once-takes",
            Self::OnceKept => "once-kept",
            Self::NeverCold => "never-cold",
            Self::ColdTooSoon => "cold-too-soon",
            Self::ReplacedAnew => "replaced-anew",
            Self::GrantOneMore => "grant-one-more",
            Self::GrantOneFewer => "grant-one-fewer",
            Self::GrantBelowLeast => "grant-below-least",
        }
    }

    /// A few words of the script, each with the wrong words for this defect; none if it changes the script's calls.
    fn words(self) -> Vec<(&'static str, String)> {
        let give_back = "charge.rule.give_back(advance(i, charge), charge, at, full_us, full_rest)";
        let settles = "if state_of(i, charge) then";
        let in_time =
            "charge.passes = not is_before(charge.longest_wait, 0, charge.wait, charge.wait_rest)";
        let takes = "if open and charge.cost > 0 and not charge.is_free then";
        let units = "units = (left - left % us) / us";
        let moves_up = ("if queue.latest > now then", "if false then");
        let words: Vec<(_, &str)> = match self {
            Self::TakeInPart => vec![(takes, "if charge.cost > 0 and charge.passes then")],
            Self::SkipShadow => vec![("charge.mode == SHADOW and", "false and")],
            Self::ProbeTakes => vec![("charge.mode == SHADOW and", "")],
            Self::CreditTwice => {
                let twice =
                    format!("(function() local once = {give_back} return {give_back} end)()");
                return vec![(give_back, twice)];
            }
            Self::CreditLost => {
                vec![(settles, "if verb ~= CREDIT and state_of(i, charge) then")]
            }
            Self::DebitLost => vec![(settles, "if verb ~= DEBIT and state_of(i, charge) then")],
            Self::ResetIdle => vec![(settles, "if verb ~= RESET and state_of(i, charge) then")],
            Self::HeldOneMore => vec![(
                "state.total + charge.cost <= charge.limit",
                "state.total + charge.cost <= charge.limit + 1",
            )],
            Self::HeldUncounted => vec![("count(state, charge.cost)", "")],
            Self::ReleaseTwice => vec![("count(state, -units)", "count(state, -2 * units)")],
            Self::TellIdle => vec![(
                "local function tell(state, units)",
                "local function tell(state, units) do return end",
            )],
            // Otherwise a key of which only the dead hold something goes as a whole.
            Self::SweepNothing => vec![(
                "if expires <= now_ms then",
                "if expires <= now_ms then expires = ends end if false then",
            )],
            Self::SweepLiving => vec![(
                "if expires <= now_ms then",
                "if expires <= now_ms + lease then",
            )],
            Self::LeaverMovesUp => vec![("(charge.longest_wait and", "(false and"), moves_up],
            Self::CreditMovesUp => vec![moves_up],
            Self::TurnUnkept => vec![(
                "if not charge.gap then",
                "if charge.wait > 0 then return end if not charge.gap then",
            )],
            Self::GapTwice => vec![("table.remove(queue.gaps, charge.gap)", "")],
            Self::GapTooSmall => vec![(
                "if not is_before(ends, ends_rest, in_gap, in_gap_rest) then",
                "if true then",
            )],
            Self::TurnEarly => vec![(
                "return leave(state, charge, charge.to, charge.to_rest)",
                "return leave(state, charge, charge.wait > 0 and charge.to - 100 or charge.to, charge.to_rest)",
            )],
            Self::RefusedTaken => vec![(in_time, "charge.passes = true")],
            Self::PatienceHalved => vec![(
                in_time,
                "charge.passes = not is_before(charge.longest_wait / 2, 0, charge.wait, charge.wait_rest)",
            )],
            Self::BanShort => vec![("now, now + length, {}", "now, now + length / 2, {}")],
            Self::BanFedByItself => vec![("if charge.onset == 1 then", "if true then")],
            Self::BanOneStrikeFewer => {
                vec![(
                    "if #live >= charge.strikes",
                    "if #live + 1 >= charge.strikes",
                )]
            }
            Self::BanOneStrikeMore => {
                vec![("if #live >= charge.strikes", "if #live > charge.strikes")]
            }
            Self::BanNeverDoubles => vec![("min(2 * length, charge.longest)", "length")],
            Self::ByHandShortens => {
                vec![("if now + charge.lasting > state.ends then", "if true then")]
            }
            Self::BannedCharged => vec![(
                takes,
                "if (open or is_banned and charge.passes) and charge.cost > 0 then",
            )],
            Self::RefillTwice => vec![(
                "state.ahead - (now_window - window)",
                "state.ahead - 2 * (now_window - window)",
            )],
            Self::DayEndless => vec![("charge.ends, 0, true", "charge.ends, state.count, true")],
            Self::DayCountedTwice => vec![(
                "pack('<Bddd', 255, state.starts, state.ends, state.count)",
                "pack('<Bddd', 255, state.starts, state.ends, 2 * state.count)",
            )],
            Self::OnceForEver => vec![(
                "return state.ends > 0 and state.used % AGAIN < charge.replays",
                "return state.ends > 0",
            )],
            Self::OnceOneMore => vec![(
                "return state.ends > 0 and state.used % AGAIN < charge.replays",
                "return state.ends > 0 and state.used % AGAIN <= charge.replays",
            )],
            Self::OnceForgotten => vec![(
                "return state.ends > 0 and state.used % AGAIN < charge.replays",
                "return false",
            )],
            Self::OnceShort => vec![("now + charge.life", "now + charge.life / 2")],
            // Two shorter paths and the longest one, here and below.
            Self::OnceTakes => vec![
                (
                    "redis.call('SETRANGE', KEYS[2], '1', string.char(used + 1))",
                    "redis.call('SETRANGE', KEYS[2], '1', string.char(used + 1)) \
                     redis.call('SET', key, struct.pack('<Bd', tag, to), 'PX', '60000')",
                ),
                (
                    "used = used + 1",
                    "used, at, tags[i], was_there[i] = used + 1, (at < now and now or at) + us, tag, 0",
                ),
                (takes, "if open and charge.cost > 0 then"),
            ],
            Self::OnceKept => vec![(
                "state.used, state.changed = CLOSED, true",
                "state.changed = true",
            )],
            Self::NeverCold => vec![(
                "return surcharge(charge, before) - surcharge(charge, after), after",
                "return 0, after",
            )],
            Self::ColdTooSoon => vec![(
                "state.cold, state.ticks = now + us + floor(ticks / TICKS), ticks % TICKS",
                "state.cold, state.ticks = now + us + floor(ticks / TICKS / 2), 0",
            )],
            Self::ReplacedAnew => vec![
                (
                    "local at, rest = state.at, state.rest",
                    "local at, rest = state.at, state.rest \
                     if state.tag ~= charge.tag and state.at > now then at, rest = now, 0 end",
                ),
                (
                    "local function stands(state, charge)",
                    "local function stands(state, charge) \
                     if state.tag ~= charge.tag and state.at > now then return now, 0 end",
                ),
            ],
            Self::GrantOneMore => vec![
                (units, "units = 1 + (left - left % us) / us"),
                (units, "units = 1 + (left - left % us) / us"),
                ("ask(charges[c], amount)", "ask(charges[c], amount + 1)"),
            ],
            Self::GrantOneFewer => vec![
                (units, "units = math.max((left - left % us) / us - 1, 0)"),
                (units, "units = math.max((left - left % us) / us - 1, 0)"),
                (
                    "ask(charges[c], amount)",
                    "ask(charges[c], max(amount - 1, 0))",
                ),
            ],
            Self::GrantBelowLeast => vec![
                (
                    "elseif remainder >= least then",
                    "elseif remainder >= 1 then",
                ),
                (
                    "elseif remainder >= least then",
                    "elseif remainder >= 1 then",
                ),
                ("max(amount, least)", "max(amount, 1)"),
            ],
            _ => Vec::new(),
        };
        let words = words.into_iter();
        words
            .map(|(right, wrong)| (right, wrong.to_owned()))
            .collect()
    }

    /// The script with the defect.
    pub(crate) fn forge(self, script: &str) -> Result<String> {
        let words = self.words();
        if !words.is_empty() {
            let mut forged = script.to_owned();
            for (right, wrong) in words {
                forged = match forged.split_once(right) {
                    Some((before, after)) => [before, &wrong, after].concat(),
                    None => return Err(format!("the script does not say {right:?}").into()),
                };
            }
            return Ok(forged);
        }
        let write = "words[1] == 'SET' or words[1] == 'SETRANGE'";
        let before = match self {
            Self::SkipWrite => format!("if unlucky and ({write}) then return true end"),
            Self::ForgetExpiry => {
                "if unlucky and words[1] == 'SET' then return call('SET', words[2], words[3]) end".to_owned()
            }
            Self::ForgetState => {
                "if unlucky and words[1] == 'GET' then return false end \
                 if unlucky and words[1] == 'MGET' then local none = {} for i = 2, #words do none[i - 1] = false end \
                 return none end"
                    .to_owned()
            }
            // The state that was written last, of the same algorithm, stands under a name of its own.
            Self::Neighbour => format!(
                "if ({write}) and words[1] == 'SET' then call('SET', 'last' .. words[3]:byte(1), words[3]) end \
                 if unlucky and words[1] == 'GET' then local own = call(...) \
                 return own and call('GET', 'last' .. own:byte(1)) or own end"
            ),
            _ => String::new(),
        };
        let again = if self == Self::DoubleCharge {
            "if unlucky then decide() end"
        } else {
            ""
        };
        Ok(format!(
            "local real = redis \
             local unlucky = real.call('TIME')[2] % 20 == 0 \
             local function through(call) return function(...) local words = {{...}} {before} return call(...) end end \
             local redis = setmetatable({{ call = through(real.call), pcall = through(real.pcall) }}, {{ __index = real }}) \
             local function decide() {script}\nend \
             local said = decide() {again} return said"
        ))
    }
}
