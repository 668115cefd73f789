//! One file with its imports: the modules that it declares, the names that it defines, and the paths that it mentions.

use std::collections::BTreeSet;
use std::str::FromStr;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// Segments of a path: `crate`, `a`, `B`.
pub(crate) type Path = Vec<String>;

/// A path in the code, with its line.
#[derive(Debug)]
pub(crate) struct Mention {
    pub(crate) path: Path,
    pub(crate) line: usize,
    /// True for everything in the module at the end: `use a::*`.
    pub(crate) is_glob: bool,
    /// The name that a `pub use` hands on to others.
    pub(crate) handed_on: Option<String>,
}

/// A name that a `use` brings into a module.
#[derive(Debug)]
pub(crate) struct Import {
    /// `None` for everything: `use a::*`.
    pub(crate) name: Option<String>,
    pub(crate) path: Path,
}

/// A module that another declares.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) name: String,
    /// `None` if it is a file of its own.
    pub(crate) body: Option<Body>,
}

/// The inside of a module.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) children: Vec<Child>,
    pub(crate) imports: Vec<Import>,
    pub(crate) mentions: Vec<Mention>,
    /// Names of the items of the module.
    pub(crate) defined: BTreeSet<String>,
    /// All words outside of its `use`s.
    pub(crate) words: BTreeSet<String>,
    /// Names of `#[macro_export]` macros, which stand at the root of the crate wherever they are defined.
    pub(crate) exported_macros: Vec<String>,
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
        body.items(tokens);
        Ok(body)
    }

    /// The items of a module.
    fn items(&mut self, tokens: TokenStream) {
        let mut tokens = Tokens::of(tokens);
        let mut is_public = false;
        let mut is_exported = false;
        while let Some(token) = tokens.next() {
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    match tokens.attribute() {
                        Attribute::OnlyTests => tokens.skip_item(),
                        Attribute::MacroExport => is_exported = true,
                        Attribute::Other => {}
                    }
                    continue;
                }
                TokenTree::Ident(word) => match word.to_string().as_str() {
                    "pub" => {
                        is_public = !tokens.take_restriction_to_self();
                        continue;
                    }
                    "mod" => self.child(&mut tokens),
                    "use" if is_public => self.uses(&mut tokens, Use::HandsOn),
                    "use" => self.uses(&mut tokens, Use::OfModule),
                    "struct" | "enum" | "union" | "trait" | "type" | "fn" | "const" | "static" => {
                        if let Some(TokenTree::Ident(name)) = tokens.peek() {
                            self.defined.insert(name.to_string());
                        }
                    }
                    "macro_rules" if is_exported => {
                        let _bang = tokens.next();
                        if let Some(TokenTree::Ident(name)) = tokens.next() {
                            self.exported_macros.push(name.to_string());
                        }
                        is_exported = false;
                    }
                    _ => self.path(&token, &mut tokens),
                },
                TokenTree::Group(group) => self.code(group.stream()),
                _ => {}
            }
            is_public = false;
        }
    }

    /// The inside of items: bodies, fields, arguments.
    fn code(&mut self, tokens: TokenStream) {
        let mut tokens = Tokens::of(tokens);
        while let Some(token) = tokens.next() {
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if matches!(tokens.attribute(), Attribute::OnlyTests) {
                        tokens.skip_item();
                    }
                }
                TokenTree::Ident(word) if *word == "use" => self.uses(&mut tokens, Use::InCode),
                TokenTree::Ident(_) => self.path(&token, &mut tokens),
                TokenTree::Group(group) => self.code(group.stream()),
                _ => {}
            }
        }
    }

    fn child(&mut self, tokens: &mut Tokens) {
        let Some(TokenTree::Ident(name)) = tokens.next() else {
            return;
        };
        let body = match tokens.next() {
            Some(TokenTree::Group(group)) => {
                let mut body = Self::default();
                body.items(group.stream());
                Some(body)
            }
            _ => None,
        };
        self.children.push(Child {
            name: name.to_string(),
            body,
        });
    }

    /// All names of one `use`. A `use` inside a function brings nothing into the module.
    fn uses(&mut self, tokens: &mut Tokens, of: Use) {
        let tree: TokenStream = tokens.until_semicolon().into_iter().collect();
        self.tree(tree, &[], of);
    }

    fn tree(&mut self, tree: TokenStream, prefix: &[String], of: Use) {
        let mut path = prefix.to_vec();
        let mut name = None;
        let mut line = 0;
        let mut is_glob = false;
        let mut tokens = Tokens::of(tree);
        let mut has_more = true;
        while has_more {
            let token = tokens.next();
            has_more = token.is_some();
            match token {
                Some(TokenTree::Ident(word)) if word == "as" => {
                    name = tokens.next().map(|name| name.to_string());
                }
                Some(TokenTree::Ident(word)) => {
                    line = word.span().start().line;
                    // `use a::{self}` is `use a`.
                    if word != "self" || path.is_empty() {
                        path.push(word.to_string());
                    }
                }
                Some(TokenTree::Group(group)) => {
                    self.tree(group.stream(), &path, of);
                    path.clear();
                }
                Some(TokenTree::Punct(punct)) if punct.as_char() == '*' => {
                    is_glob = true;
                    line = punct.span().start().line;
                }
                Some(TokenTree::Punct(punct)) if punct.as_char() != ',' => {}
                _ => {
                    if line > 0 && !path.is_empty() {
                        let last = || path.last().cloned();
                        let name = if is_glob {
                            None
                        } else {
                            name.take().or_else(last)
                        };
                        self.mentions.push(Mention {
                            path: path.clone(),
                            line,
                            is_glob,
                            handed_on: name.clone().filter(|_| of == Use::HandsOn),
                        });
                        if of != Use::InCode {
                            self.imports.push(Import { name, path });
                        }
                    }
                    (path, name, line, is_glob) = (prefix.to_vec(), None, 0, false);
                }
            }
        }
    }

    /// A path that begins with this word, if there is one.
    fn path(&mut self, first: &TokenTree, tokens: &mut Tokens) {
        let line = first.span().start().line;
        let mut path = vec![first.to_string()];
        self.words.insert(first.to_string());
        while tokens.take_colons() {
            match tokens.peek() {
                Some(TokenTree::Ident(word)) => {
                    path.push(word.to_string());
                    let _word = tokens.next();
                }
                _ => break,
            }
        }
        if path.len() > 1 {
            self.mentions.push(Mention {
                path,
                line,
                is_glob: false,
                handed_on: None,
            });
        }
    }
}

/// The place of a `use`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// At the top of a module, for itself and its children.
    OfModule,
    /// There, and `pub`.
    HandsOn,
    /// Inside a function: it brings nothing into the module.
    InCode,
}

enum Attribute {
    OnlyTests,
    MacroExport,
    Other,
}

struct Tokens {
    tokens: Vec<TokenTree>,
    at: usize,
}

impl Tokens {
    fn of(tokens: TokenStream) -> Self {
        Self {
            tokens: tokens.into_iter().collect(),
            at: 0,
        }
    }

    fn next(&mut self) -> Option<TokenTree> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn peek(&self) -> Option<&TokenTree> {
        self.tokens.get(self.at)
    }

    fn take_if(&mut self, is_meant: impl FnOnce(&TokenTree) -> bool) -> Option<TokenTree> {
        if self.peek().is_some_and(is_meant) {
            self.next()
        } else {
            None
        }
    }

    /// An attribute, whose `#` was read.
    fn attribute(&mut self) -> Attribute {
        let _inner = self
            .take_if(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == '!'));
        let Some(TokenTree::Group(group)) = self.next() else {
            return Attribute::Other;
        };
        let text = group.stream().to_string().replace(' ', "");
        if text == "cfg(test)" || text.starts_with("cfg(all(test,") {
            Attribute::OnlyTests
        } else if text == "macro_export" {
            Attribute::MacroExport
        } else {
            Attribute::Other
        }
    }

    /// Skips the item below an attribute: to its semicolon, its comma, or the end of its braces.
    fn skip_item(&mut self) {
        let mut angles = 0_i32;
        let mut last = ' ';
        while let Some(token) = self.next() {
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
                TokenTree::Punct(punct) => {
                    match punct.as_char() {
                        ';' => return,
                        ',' if angles == 0 => return,
                        '<' => angles += 1,
                        '>' if last != '-' && last != '=' => angles -= 1,
                        _ => {}
                    }
                    last = punct.as_char();
                }
                // Another attribute of the same item has brackets of its own.
                _ => last = ' ',
            }
        }
    }

    /// Takes the parentheses behind `pub`. Says whether they name the module alone.
    fn take_restriction_to_self(&mut self) -> bool {
        let restriction = self.take_if(|token| {
            matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
        });
        restriction.is_some_and(|token| token.to_string().replace(' ', "") == "(self)")
    }

    fn until_semicolon(&mut self) -> Vec<TokenTree> {
        let mut tokens = Vec::new();
        while let Some(token) = self.next() {
            if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ';') {
                break;
            }
            tokens.push(token);
        }
        tokens
    }

    /// Takes `::`.
    fn take_colons(&mut self) -> bool {
        let is_colon = |token: Option<&TokenTree>, spacing: Option<Spacing>| {
            matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':'
                && spacing.is_none_or(|spacing| punct.spacing() == spacing))
        };
        let are_colons = is_colon(self.tokens.get(self.at), Some(Spacing::Joint))
            && is_colon(self.tokens.get(self.at + 1), None);
        if are_colons {
            self.at += 2;
        }
        are_colons
    }
}
