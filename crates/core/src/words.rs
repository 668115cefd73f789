//! The words of quotas, bans and calendars.

use crate::ParseQuotaError;

/// The bytes of the longest text that is looked at. A longer one than any quota is invalid, whatever it says.
const MOST: usize = 256;

/// A word, a number, or a sign. Words are in lower case, because capitals never mean another unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) String);

impl Word {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.0 == text
    }

    pub(crate) fn is_one_of(&self, texts: &[&str]) -> bool {
        texts.contains(&self.0.as_str())
    }

    pub(crate) fn is_number(&self) -> bool {
        self.0.starts_with(|c: char| c.is_ascii_digit())
    }
}

/// The words of a text; `None` if it is too long. Numbers and words need no blank between them, and a slash stands alone:
/// `10req/5s` is five.
pub(crate) fn words_of(text: &str) -> Option<Vec<Word>> {
    if text.len() > MOST {
        return None;
    }
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Kind {
        Blank,
        Number,
        Word,
        Sign,
    }
    let mut words: Vec<Word> = Vec::new();
    let mut last = Kind::Blank;
    for c in text.to_lowercase().chars() {
        let kind = match c {
            _ if c.is_whitespace() => Kind::Blank,
            '0'..='9' => Kind::Number,
            // A token that is not a number is quoted as it was written: "1.5", "1,000", "-1".
            '_' | '.' | ',' if last == Kind::Number => Kind::Number,
            '-' | '_' if last == Kind::Word => Kind::Word,
            '+' | '-' => Kind::Number,
            _ if c.is_alphanumeric() => Kind::Word,
            _ => Kind::Sign,
        };
        match words.last_mut() {
            _ if kind == Kind::Blank => {}
            Some(word) if kind == last && kind != Kind::Sign => word.0.push(c),
            _ => words.push(Word(c.to_string())),
        }
        last = kind;
    }
    Some(words)
}

/// Words that are read one after the other.
pub(crate) struct Words<'a>(&'a [Word]);

impl<'a> Words<'a> {
    pub(crate) const fn new(words: &'a [Word]) -> Self {
        Self(words)
    }

    pub(crate) const fn rest(&self) -> &'a [Word] {
        self.0
    }

    /// The next word; `None` at the end.
    pub(crate) fn next(&mut self) -> &'a str {
        self.next_if(|_| true).unwrap_or_default()
    }

    pub(crate) fn next_if(&mut self, is: impl Fn(&Word) -> bool) -> Option<&'a str> {
        let (first, rest) = self.0.split_first()?;
        is(first).then(|| {
            self.0 = rest;
            first.0.as_str()
        })
    }

    /// Takes the next words if they are these. Says whether they were.
    pub(crate) fn skip_all(&mut self, texts: &[&str]) -> bool {
        let is_next = self.0.len() >= texts.len()
            && self.0.iter().zip(texts).all(|(word, text)| word.is(text));
        if is_next {
            self.0 = &self.0[texts.len()..];
        }
        is_next
    }

    /// Takes the next words if they are those of one of these forms. Says whether they were.
    pub(crate) fn skip_one_form(&mut self, forms: &[&[&str]]) -> bool {
        forms.iter().any(|form| self.skip_all(form))
    }

    /// Takes the next word if it is this one. Says whether it was.
    pub(crate) fn skip(&mut self, text: &str) -> bool {
        self.next_if(|word| word.is(text)).is_some()
    }

    /// Takes the next word if it is one of these. Says whether it was.
    pub(crate) fn skip_one_of(&mut self, texts: &[&str]) -> bool {
        self.next_if(|word| word.is_one_of(texts)).is_some()
    }
}

/// A decimal number, `_` allowed between its digits. No sign, no fraction. `None` if it is beyond all bounds, because the error
/// could then only show another number.
pub(crate) fn number(text: &str, expected: &'static str) -> Result<Option<u64>, ParseQuotaError> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    if !text.starts_with(|c: char| c.is_ascii_digit()) || text.ends_with('_') {
        return Err(syntax(text, expected));
    }
    if !plain.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(syntax(text, expected));
    }
    Ok(plain.parse().ok())
}

pub(crate) fn syntax(found: &str, expected: &'static str) -> ParseQuotaError {
    ParseQuotaError::Syntax {
        found: found.chars().take(40).collect(),
        expected,
        instead: None,
    }
}
