//! One file with its imports: the modules that it declares, and the paths that it mentions.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::{Peekable, from_fn};
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree, token_stream};

/// A path in the code, with its line.
#[derive(Debug)]
pub(crate) struct Mention {
    /// The segments: `crate`, `a`, `B`.
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
    /// The name that a `use` gives it.
    pub(crate) name: Option<String>,
    /// True for everything in the module at the end: `use a::*`.
    pub(crate) is_glob: bool,
    /// True for a `pub use`, which hands it on to others.
    pub(crate) is_public: bool,
}

/// The inside of a module.
#[derive(Debug, Default)]
pub(crate) struct Body {
    /// Modules that it declares, by their names: without a body those that are files of their own.
    pub(crate) children: Vec<(String, Option<Self>)>,
    /// Names that a `use` brings into the module.
    pub(crate) imports: BTreeMap<String, Vec<String>>,
    pub(crate) mentions: Vec<Mention>,
    /// All words outside of its `use`s.
    pub(crate) words: BTreeSet<String>,
}

impl Body {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If the text cannot be split into tokens.
    pub(crate) fn read(source: &str) -> Result<Self, String> {
        let tokens = TokenStream::from_str(source).map_err(|error| error.to_string())?;
        let mut body = Self::default();
        body.code(tokens, true);
        Ok(body)
    }

    /// The items of a module, or the inside of items: bodies, fields, arguments.
    fn code(&mut self, tokens: TokenStream, is_module: bool) {
        let mut tokens = tokens.into_iter().peekable();
        let mut is_public = false;
        while let Some(token) = tokens.next() {
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if is_for_tests(&mut tokens) {
                        skip_item(&mut tokens);
                    }
                    continue;
                }
                TokenTree::Ident(word) if is_module && *word == "pub" => {
                    let _restriction = tokens.next_if(|token| match token {
                        TokenTree::Group(group) => group.delimiter() == Delimiter::Parenthesis,
                        _ => false,
                    });
                    is_public = true;
                    continue;
                }
                TokenTree::Ident(word) if is_module && *word == "mod" => self.child(&mut tokens),
                // `impl Trait + use<'a>` is another `use`.
                TokenTree::Ident(word) if *word == "use" && !is_next(&mut tokens, '<') => {
                    let tree = from_fn(|| tokens.next_if(|token| !is_punct(token, ';')));
                    self.uses(&tree.collect::<Vec<_>>(), &[], is_module, is_public);
                }
                TokenTree::Ident(_) => self.path(&token, &mut tokens),
                TokenTree::Group(group) => self.code(group.stream(), false),
                _ => {}
            }
            is_public = false;
        }
    }

    fn child(&mut self, tokens: &mut Tokens) {
        let name = tokens.next().map(|name| name.to_string());
        let body = match tokens.next() {
            Some(TokenTree::Group(group)) => {
                let mut body = Self::default();
                body.code(group.stream(), true);
                Some(body)
            }
            _ => None,
        };
        self.children.extend(name.map(|name| (name, body)));
    }

    /// All names of one `use`, or of one group in it. Inside a function it brings nothing into the module.
    fn uses(&mut self, tree: &[TokenTree], prefix: &[String], is_of_module: bool, is_public: bool) {
        for part in tree.split(|token| is_punct(token, ',')) {
            let mut path = prefix.to_vec();
            let (mut name, mut line, mut is_glob) = (None, 0, false);
            let mut tokens = part.iter();
            while let Some(token) = tokens.next() {
                match token {
                    TokenTree::Ident(word) if *word == "as" => name = tokens.next(),
                    TokenTree::Ident(word) => {
                        line = word.span().start().line;
                        // `use a::{self}` is `use a`.
                        if *word != "self" || path.is_empty() {
                            path.push(word.to_string());
                        }
                    }
                    TokenTree::Group(group) => {
                        let inside: Vec<_> = group.stream().into_iter().collect();
                        self.uses(&inside, &path, is_of_module, is_public);
                        line = 0;
                    }
                    _ if is_punct(token, '*') => {
                        line = token.span().start().line;
                        is_glob = true;
                    }
                    _ => {}
                }
            }
            if line == 0 {
                continue;
            }
            let name = name
                .map(ToString::to_string)
                .or_else(|| path.last().cloned());
            let name = name.filter(|_| !is_glob);
            if is_of_module {
                let import = name.iter().map(|name| (name.clone(), path.clone()));
                self.imports.extend(import);
            }
            self.mentions.push(Mention {
                path,
                line,
                name,
                is_glob,
                is_public,
            });
        }
    }

    /// A path that begins with this word, if there is one.
    fn path(&mut self, first: &TokenTree, tokens: &mut Tokens) {
        let mut path = vec![first.to_string()];
        self.words.insert(first.to_string());
        while take_colons(tokens) {
            match tokens.next_if(|token| matches!(token, TokenTree::Ident(_))) {
                Some(word) => path.push(word.to_string()),
                None => break,
            }
        }
        if path.len() > 1 {
            self.mentions.push(Mention {
                path,
                line: first.span().start().line,
                name: None,
                is_glob: false,
                is_public: false,
            });
        }
    }
}

fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

fn is_next(tokens: &mut Tokens, sign: char) -> bool {
    tokens.peek().is_some_and(|token| is_punct(token, sign))
}

type Tokens = Peekable<token_stream::IntoIter>;

/// Takes an attribute, whose `#` was read. True if what stands below it is for tests alone.
fn is_for_tests(tokens: &mut Tokens) -> bool {
    let _inner = tokens.next_if(|token| is_punct(token, '!'));
    let Some(TokenTree::Group(group)) = tokens.next() else {
        return false;
    };
    let text = group.stream().to_string().replace(' ', "");
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Skips the item below an attribute: to its semicolon, its comma, or the end of its braces.
fn skip_item(tokens: &mut Tokens) {
    let mut angles = 0_i32;
    let mut last = ' ';
    for token in tokens {
        // Another attribute of the same item has brackets of its own.
        let mut sign = ' ';
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            TokenTree::Punct(punct) => sign = punct.as_char(),
            _ => {}
        }
        match sign {
            ';' => return,
            ',' if angles == 0 => return,
            '<' => angles += 1,
            '>' if last != '-' && last != '=' => angles -= 1,
            _ => {}
        }
        last = sign;
    }
}

/// Takes `::`. A single colon is no part of a path either.
fn take_colons(tokens: &mut Tokens) -> bool {
    let mut take = || tokens.next_if(|token| is_punct(token, ':')).is_some();
    take() && take()
}
