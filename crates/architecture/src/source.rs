//! The modules of one crate, and their imports.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::{fs, io};

use crate::circle::Graph;
use crate::syntax::{Body, Mention};

/// Sources by their path below `src`: `lib.rs`, `cluster/learn.rs`.
pub type Sources = BTreeMap<String, String>;

/// The modules of one crate.
#[derive(Debug)]
pub struct House {
    modules: Vec<Module>,
}

/// The root of the crate among the modules.
const ROOT: usize = 0;

/// The most re-exports that one name may pass. More of them form a circle, which the compiler refuses.
const MOST_REEXPORTS: usize = 32;

#[derive(Debug)]
struct Module {
    /// The names from the root to here.
    name: Vec<String>,
    file: String,
    /// The modules around it, the root first, and itself.
    line: Vec<usize>,
    children: BTreeMap<String, usize>,
    body: Body,
}

/// The end of a path.
#[derive(Debug)]
enum End {
    Module,
    /// A name that the module defines.
    Item,
    /// A name that another crate defines, and the module has.
    Foreign,
}

impl House {
    /// Reads the sources below a folder `src`.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or is not Rust.
    pub fn open(src: &FilePath) -> io::Result<Self> {
        let mut sources = Sources::new();
        let mut folders = vec![src.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let name = path.strip_prefix(src).unwrap_or(&path).to_string_lossy();
                    sources.insert(name.replace('\\', "/"), fs::read_to_string(&path)?);
                }
            }
        }
        Self::read(&sources).map_err(io::Error::other)
    }

    /// Reads a crate, beginning at its `lib.rs` or `main.rs`. A file that no module declares is not read.
    ///
    /// # Errors
    ///
    /// If a module has no file, or a file is not Rust.
    pub fn read(sources: &Sources) -> Result<Self, String> {
        let mut house = Self {
            modules: Vec::new(),
        };
        let root = read_file(sources, &["lib.rs".into(), "main.rs".into()])?;
        house.add(sources, &[], &[], root)?;
        Ok(house)
    }

    /// Adds a module, with all below it, to the one at the end of a line, and returns its number.
    fn add(
        &mut self,
        sources: &Sources,
        name: &[String],
        line: &[usize],
        (file, mut body): (String, Body),
    ) -> Result<usize, String> {
        let here = self.modules.len();
        let line = [line, &[here]].concat();
        let children = std::mem::take(&mut body.children);
        self.modules.push(Module {
            name: name.to_vec(),
            file: file.clone(),
            line: line.clone(),
            children: BTreeMap::new(),
            body,
        });
        for (child, body) in children {
            let name: Vec<_> = name.iter().chain([&child]).cloned().collect();
            let path = name.join("/");
            let read = match body {
                Some(body) => (file.clone(), body),
                None => read_file(sources, &[format!("{path}.rs"), format!("{path}/mod.rs")])?,
            };
            let number = self.add(sources, &name, &line, read)?;
            self.modules[here].children.insert(child, number);
        }
        Ok(here)
    }

    /// A sentence for each circle, each import that runs upward, and each glob import. The modules of each list are one thing in
    /// several files: circles among the first and the others are none, and others that are in no circle with it are named.
    #[must_use]
    pub fn violations(&self, wholes: &[Vec<String>]) -> Vec<String> {
        // Circles among siblings count also where each of them is a part of its parent.
        let mut graphs: BTreeMap<(usize, bool), Graph> = BTreeMap::new();
        let mut violations = Vec::new();
        for (from, module) in self.modules.iter().enumerate() {
            for mention in &module.body.mentions {
                let line = format!("{}:{}", module.file, mention.line);
                let words = mention.path.join("::");
                if mention.is_glob && self.takes_unnamed(from, mention) {
                    violations.push(format!("{line} imports {words}::*: name what it takes"));
                }
                for to in self.passed(from, &mention.path) {
                    if to == ROOT && from != ROOT {
                        violations.push(format!(
                            "{line} imports {words}, which the root of the crate defines: an import that runs upward"
                        ));
                    }
                    if self.only_hands_on(from, mention, to) {
                        continue;
                    }
                    let Some((level, from, to)) = self.edge(from, to) else {
                        continue;
                    };
                    let said = format!("{line} names {words}");
                    let are_siblings = from != level && to != level;
                    for among_siblings in [true, false] {
                        if are_siblings || !among_siblings {
                            let graph = graphs.entry((level, among_siblings)).or_default();
                            graph.add(&self.name(from), &self.name(to), said.clone());
                        }
                    }
                }
            }
        }
        for whole in wholes {
            let [module, parts @ ..] = &whole[..] else {
                continue;
            };
            let joined = graphs.values_mut().map(|graph| graph.join(module, parts));
            let joined = joined.collect::<Vec<_>>().concat();
            let others = parts.iter().filter(|part| !joined.contains(part));
            violations.extend(others.map(|part| {
                format!("{part} is listed as a part of {module}, and is in no circle with it")
            }));
        }
        violations.extend(graphs.values().flat_map(Graph::circles));
        violations.sort();
        violations.dedup();
        violations
    }

    /// True for a glob import of a module of this crate, but for one that is handed on.
    fn takes_unnamed(&self, from: usize, mention: &Mention) -> bool {
        match self.follow(from, &mention.path, &mut Vec::new(), 0) {
            Some((all, End::Module)) => !mention.is_public || self.is_around(all, from),
            _ => false,
        }
    }

    /// True for a name of a child that the module uses nowhere but in a `pub use`: it does not need it.
    fn only_hands_on(&self, from: usize, mention: &Mention, to: usize) -> bool {
        let words = &self.modules[from].body.words;
        let is_used = (mention.name.as_ref()).is_none_or(|name| words.contains(name));
        mention.is_public && !is_used && self.is_around(from, to)
    }

    fn is_around(&self, outer: usize, inner: usize) -> bool {
        outer != inner && self.modules[inner].line.contains(&outer)
    }

    fn name(&self, module: usize) -> String {
        self.modules[module].name.join("::")
    }

    /// The modules that a path passes; the last defines the name. The root counts only as the last.
    fn passed(&self, from: usize, path: &[String]) -> Vec<usize> {
        let mut passed = Vec::new();
        let Some((module, end)) = self.follow(from, path, &mut passed, 0) else {
            return Vec::new();
        };
        // A module around this one hands on what others define: this one does not need it.
        passed.retain(|module| *module != ROOT && !self.is_around(*module, from));
        let is_needed = match end {
            // A path that ends at a module, such as `use crate::name`, names nothing in it.
            End::Module => module != ROOT,
            End::Item => true,
            End::Foreign => !self.is_around(module, from),
        };
        passed.extend(is_needed.then_some(module));
        passed
    }

    /// The end of a path, and the module of it. `None` for a name of another crate.
    fn follow(
        &self,
        from: usize,
        path: &[String],
        passed: &mut Vec<usize>,
        reexports: usize,
    ) -> Option<(usize, End)> {
        if reexports > MOST_REEXPORTS {
            return None;
        }
        let (mut here, mut rest) = (from, path);
        let mut is_inside = false;
        while let [first, behind @ ..] = rest {
            match first.as_str() {
                "crate" => here = ROOT,
                "self" => {}
                "super" => here = *self.modules[here].line.iter().nth_back(1)?,
                _ => break,
            }
            (rest, is_inside) = (behind, true);
        }
        while let [first, behind @ ..] = rest {
            let module = &self.modules[here];
            if let Some(&child) = module.children.get(first) {
                here = child;
            } else if let Some(import) = module.body.imports.get(first)
                && import != path
            {
                if is_inside {
                    passed.push(here);
                }
                match self.follow(here, import, passed, reexports + 1) {
                    Some((module, End::Module)) => here = module,
                    Some(found) => return Some(found),
                    // Another crate defines the name. An import through a module of ours counts as one of that module; the root
                    // only hands it on.
                    None => return (is_inside && here != ROOT).then_some((here, End::Foreign)),
                }
            } else {
                return is_inside.then_some((here, End::Item));
            }
            (rest, is_inside) = (behind, true);
            if !rest.is_empty() {
                passed.push(here);
            }
        }
        is_inside.then_some((here, End::Module))
    }

    /// The parent and the rooms of an import, if it runs from room to room.
    fn edge(&self, from: usize, to: usize) -> Option<(usize, usize, usize)> {
        let [froms, tos] = [from, to].map(|module| &self.modules[module].line);
        let shared = froms.iter().zip(tos).take_while(|(a, b)| a == b).count();
        let level = *froms.get(shared.checked_sub(1)?)?;
        match (froms.get(shared), tos.get(shared)) {
            (Some(&from), Some(&to)) => Some((level, from, to)),
            // Parent and child.
            (None, Some(&child)) if level != ROOT => Some((level, level, child)),
            (Some(&child), None) if level != ROOT => Some((level, child, level)),
            _ => None,
        }
    }
}

/// Reads the one of these files that is there.
fn read_file(sources: &Sources, files: &[String; 2]) -> Result<(String, Body), String> {
    let Some(file) = files.iter().find(|file| sources.contains_key(*file)) else {
        return Err(format!("there is neither {} nor {}", files[0], files[1]));
    };
    let body = Body::read(&sources[file]).map_err(|error| format!("{file}: {error}"))?;
    Ok((file.clone(), body))
}
