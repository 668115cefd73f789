//! A limiter with a deliberate defect: the script is changed on its way to the server. It shows that the whole chain from
//! clients to checker would notice.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

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
    /// A charge that leaves before its turn moves up those who stand behind it.
    LeaverMovesUp,
    /// A credit moves others up while somebody waits.
    CreditMovesUp,
    /// A turn is promised and not kept.
    TurnUnkept,
    /// The place of one who left is given out twice.
    GapTwice,
    /// One who does not fit into the place of one who left takes it.
    GapTooSmall,
    /// A turn comes earlier than those before it allow.
    TurnEarly,
}

impl Forgery {
    /// All defects.
    pub const ALL: [Self; 21] = [
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
        Self::LeaverMovesUp,
        Self::CreditMovesUp,
        Self::TurnUnkept,
        Self::GapTwice,
        Self::GapTooSmall,
        Self::TurnEarly,
    ];

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
            Self::LeaverMovesUp => "leaver-moves-up",
            Self::CreditMovesUp => "credit-moves-up",
            Self::TurnUnkept => "turn-unkept",
            Self::GapTwice => "gap-twice",
            Self::GapTooSmall => "gap-too-small",
            Self::TurnEarly => "turn-early",
        }
    }

    /// A few words of the script, each with the wrong words for this defect; none if it changes the script's calls.
    fn words(self) -> Vec<(&'static str, String)> {
        let give_back = "charge.rule.give_back(advance(i, charge), charge, at, full_us, full_rest)";
        let settles = "if state_of(i, charge) then";
        let moves_up = ("if queue.latest > now then", "if false then");
        let words: Vec<(_, &str)> = match self {
            Self::TakeInPart => vec![(
                "if open and charge.cost > 0 then",
                "if charge.cost > 0 and charge.rule.passes(states[i], charge) then",
            )],
            Self::SkipShadow => vec![("charge.mode == SHADOW and", "false and")],
            Self::ProbeTakes => vec![("charge.mode == SHADOW and", "")],
            Self::CreditTwice => return vec![(give_back, format!("{give_back} {give_back}"))],
            Self::CreditLost => {
                vec![(settles, "if verb ~= CREDIT and state_of(i, charge) then")]
            }
            Self::DebitLost => vec![(settles, "if verb ~= DEBIT and state_of(i, charge) then")],
            Self::ResetIdle => vec![(settles, "if verb ~= RESET and state_of(i, charge) then")],
            Self::HeldOneMore => vec![(
                "state.total + charge.cost <= charge.quota.limit",
                "state.total + charge.cost <= charge.quota.limit + 1",
            )],
            Self::HeldUncounted => vec![("count(state, charge.cost)", "")],
            Self::ReleaseTwice => vec![("count(state, -units)", "count(state, -2 * units)")],
            Self::LeaverMovesUp => vec![("(charge.quota.wait and", "(false and"), moves_up],
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
                "return leave(state, quota, charge.to, charge.to_rest)",
                "return leave(state, quota, charge.wait > 0 and charge.to - 100 or charge.to, charge.to_rest)",
            )],
            _ => Vec::new(),
        };
        let words = words.into_iter();
        words
            .map(|(right, wrong)| (right, wrong.to_owned()))
            .collect()
    }

    /// The script with the defect.
    fn forge(self, script: &str) -> Result<String> {
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

/// A proxy before a server, on a port of its own, that changes the script while it is loaded.
#[derive(Debug)]
pub(crate) struct Forger {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    forgery: Forgery,
    server: u16,
    /// The names of the true script and of the false one.
    names: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
    is_over: Mutex<bool>,
}

impl Forger {
    pub(crate) fn before(server: u16, forgery: Forgery) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            forgery,
            server,
            names: Mutex::default(),
            is_over: Mutex::new(false),
        });
        let accepting = Arc::clone(&shared);
        let _detached = thread::spawn(move || accept(&listener, &accepting));
        Ok(Self { port, shared })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        *lock(&self.shared.is_over) = true;
        let _woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        if *lock(&shared.is_over) {
            return;
        }
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server)) else {
            continue;
        };
        let ends = [&client, &server].map(TcpStream::try_clone);
        let [Ok(client_end), Ok(server_end)] = ends else {
            continue;
        };
        let shared = Arc::clone(shared);
        let _detached = thread::spawn(move || {
            let _broken = requests(client_end, &server_end, &shared);
            let _closed = server_end.shutdown(Shutdown::Both);
        });
        let _detached = thread::spawn(move || {
            let (mut server, mut client) = (server, client);
            let _broken = std::io::copy(&mut server, &mut client);
            let _closed = client.shutdown(Shutdown::Both);
        });
    }
}

fn requests(client: TcpStream, mut server: &TcpStream, shared: &Shared) -> Result<()> {
    let mut client = BufReader::new(client);
    loop {
        let mut words = command(&mut client)?;
        let is = |position: usize, word: &str| {
            words
                .get(position)
                .is_some_and(|it: &Vec<u8>| it.eq_ignore_ascii_case(word.as_bytes()))
        };
        if is(0, "SCRIPT") && is(1, "LOAD") && words.len() == 3 {
            let forged = shared.forgery.forge(&String::from_utf8_lossy(&words[2]))?;
            let names = (
                loaded(shared, &words[2])?,
                loaded(shared, forged.as_bytes())?,
            );
            *lock(&shared.names) = Some(names);
            words[2] = forged.into_bytes();
        } else if is(0, "EVALSHA")
            && words.len() > 2
            && let Some((real, forged)) = &*lock(&shared.names)
            && words[1] == *real
        {
            words[1].clone_from(forged);
        }
        server.write_all(&packed(&words))?;
    }
}

/// Loads a script and returns its name.
fn loaded(shared: &Shared, script: &[u8]) -> Result<Vec<u8>> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server))?;
    server.write_all(&packed(&[
        b"SCRIPT".to_vec(),
        b"LOAD".to_vec(),
        script.to_vec(),
    ]))?;
    let mut answer = BufReader::new(server);
    let length = number(&mut answer, b'$')?;
    text(&mut answer, length)
}

fn packed(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn command(client: &mut impl BufRead) -> Result<Vec<Vec<u8>>> {
    let words = number(client, b'*')?;
    let word = |_| {
        let length = number(client, b'$')?;
        text(client, length)
    };
    (0..words).map(word).collect()
}

fn number(input: &mut impl BufRead, kind: u8) -> Result<usize> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line)?;
    let digits = line.strip_prefix(&[kind]).ok_or("not what was expected")?;
    Ok(std::str::from_utf8(digits)?.trim().parse()?)
}

fn text(input: &mut impl Read, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length + 2];
    input.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}
