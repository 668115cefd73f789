//! The modules of one crate, and their imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;
use std::{fs, io};

use crate::circle::{Graph, Pair, Whole};
use crate::files;
use crate::syntax::{Body, Mention, Path};

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

/// Each glob import branches the search, so that it counts as many re-exports.
const COST_OF_GLOB: usize = 12;

#[derive(Debug)]
struct Module {
    /// The names from the root to here.
    name: Vec<String>,
    file: String,
    /// The parent, the parent's parent, up to the root.
    ancestors: Vec<usize>,
    children: BTreeMap<String, usize>,
    imports: BTreeMap<String, Path>,
    /// The modules of which it imports everything.
    globs: Vec<Path>,
    mentions: Vec<Mention>,
    /// Names of its own items.
    defined: BTreeSet<String>,
    words: BTreeSet<String>,
}

impl House {
    /// Reads the sources below a folder `src`.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or is not Rust.
    pub fn open(src: &FilePath) -> io::Result<Self> {
        let mut sources = Sources::new();
        for path in files::below(src)? {
            let inside = path.strip_prefix(src).unwrap_or(&path);
            let name = inside.to_string_lossy().replace('\\', "/");
            sources.insert(name, fs::read_to_string(&path)?);
        }
        Self::read(&sources).map_err(io::Error::other)
    }

    /// Reads a crate, beginning at its `lib.rs` or `main.rs`. A file that no module declares is not read.
    ///
    /// # Errors
    ///
    /// If a module has no file, or a file is not Rust.
    pub fn read(sources: &Sources) -> Result<Self, String> {
        let root = ["lib.rs", "main.rs"]
            .into_iter()
            .find(|root| sources.contains_key(*root))
            .ok_or("neither lib.rs nor main.rs is there")?;
        let mut house = Self {
            modules: Vec::new(),
        };
        let mut exported_macros = Vec::new();
        let mut waiting = vec![Waiting {
            name: Vec::new(),
            file: root.to_owned(),
            ancestors: Vec::new(),
            body: None,
        }];
        while let Some(next) = waiting.pop() {
            let body = match next.body {
                Some(body) => body,
                None => {
                    let text = sources.get(&next.file).map_or("", String::as_str);
                    Body::read(text).map_err(|error| format!("{}: {error}", next.file))?
                }
            };
            let here = house.modules.len();
            if let Some(&parent) = next.ancestors.first()
                && let (Some(parent), Some(name)) =
                    (house.modules.get_mut(parent), next.name.last())
            {
                parent.children.insert(name.clone(), here);
            }
            let ancestors: Vec<_> = [here].into_iter().chain(next.ancestors.clone()).collect();
            for child in body.children {
                let mut name = next.name.clone();
                name.push(child.name);
                let file = match child.body {
                    Some(_) => next.file.clone(),
                    None => file_of(sources, &name)?,
                };
                waiting.push(Waiting {
                    name,
                    file,
                    ancestors: ancestors.clone(),
                    body: child.body,
                });
            }
            exported_macros.extend(body.exported_macros.into_iter().map(|name| {
                let mut path = vec!["crate".to_owned()];
                path.extend(next.name.iter().cloned());
                path.push(name.clone());
                (name, path)
            }));
            house.modules.push(Module {
                name: next.name,
                file: next.file,
                ancestors: next.ancestors,
                children: BTreeMap::new(),
                globs: (body.imports.iter())
                    .filter(|import| import.name.is_none())
                    .map(|import| import.path.clone())
                    .collect(),
                imports: (body.imports.into_iter())
                    .filter_map(|import| Some((import.name?, import.path)))
                    .collect(),
                mentions: body.mentions,
                defined: body.defined,
                words: body.words,
            });
        }
        let root = &mut house.modules[ROOT];
        for (name, path) in exported_macros {
            if path.len() > 2 {
                root.imports.insert(name, path);
            }
        }
        Ok(house)
    }

    /// A sentence for each circle outside of the pairs and wholes, each import that runs upward, and each pair and part that is no
    /// longer one.
    #[must_use]
    pub fn violations(&self, pairs: &[Pair<'_>], wholes: &[Whole<'_>]) -> Vec<String> {
        // Circles among siblings count also where each of them is a part of its parent.
        let mut among_siblings: BTreeMap<usize, Graph> = BTreeMap::new();
        let mut graphs: BTreeMap<usize, Graph> = BTreeMap::new();
        let mut violations = Vec::new();
        for (from, module) in self.modules.iter().enumerate() {
            for mention in &module.mentions {
                let line = format!("{}:{}", module.file, mention.line);
                let words = mention.path.join("::");
                let (words, all) = match mention.is_glob {
                    true => (
                        format!("{words}::*"),
                        self.reached_by_glob(from, &mention.path),
                    ),
                    false => (words, self.passed(from, &mention.path)),
                };
                let is_handed_on =
                    (mention.handed_on.as_ref()).is_some_and(|name| !module.words.contains(name));
                for to in all {
                    if to == ROOT && from != ROOT {
                        violations.push(format!(
                            "{line} imports {words}, which the root of the crate defines: an import that runs upward"
                        ));
                    }
                    // A module does not need the items that it only hands on from its children.
                    if is_handed_on && self.modules[to].ancestors.contains(&from) {
                        continue;
                    }
                    if let Some((level, from, to)) = self.edge(from, to) {
                        let said = format!("{line} names {words}");
                        let (from_name, to_name) = (self.name(from), self.name(to));
                        if from != level && to != level {
                            let graph = among_siblings.entry(level).or_default();
                            graph.add(from_name.clone(), to_name.clone(), said.clone());
                        }
                        let graph = graphs.entry(level).or_default();
                        graph.add(from_name, to_name, said);
                    }
                }
            }
        }
        let mut is_used = vec![false; pairs.len()];
        for graph in graphs.values_mut().chain(among_siblings.values_mut()) {
            for (pair, is_used) in pairs.iter().zip(&mut is_used) {
                *is_used |= graph.join(pair);
            }
        }
        for whole in wholes {
            let level = graphs
                .keys()
                .find(|level| self.name(**level) == whole.module);
            let graph = level.copied().and_then(|level| graphs.get_mut(&level));
            let no_parts = graph.map_or(whole.parts.to_vec(), |graph| graph.join_whole(whole));
            violations.extend(no_parts.into_iter().map(|part| {
                format!(
                    "{part} stands in the list of parts of {}, and is in no circle with it",
                    whole.module
                )
            }));
        }
        for graph in graphs.values().chain(among_siblings.values()) {
            violations.extend(graph.circles());
        }
        for (pair, is_used) in pairs.iter().zip(is_used) {
            if !is_used {
                violations.push(format!(
                    "{} and {} stand in the list of pairs, and do not import each other",
                    pair.modules[0], pair.modules[1]
                ));
            }
        }
        violations.sort();
        violations.dedup();
        violations
    }

    fn name(&self, module: usize) -> String {
        match &self.modules[module].name[..] {
            [] => "the root".to_owned(),
            name => name.join("::"),
        }
    }

    /// The modules that a path passes; the last defines the name. The root counts only as the last.
    fn passed(&self, from: usize, path: &[String]) -> Vec<usize> {
        let mut passed = Vec::new();
        let Some(found) = self.follow(from, path, &mut passed, 0) else {
            return Vec::new();
        };
        // A module around this one hands on what others define: this one does not need it.
        let is_around = |module: &usize| self.modules[from].ancestors.contains(module);
        passed.retain(|module| *module != ROOT && !is_around(module));
        if found.is_foreign && is_around(&found.module) {
            return passed;
        }
        // A path that ends at a module, such as `use crate::name`, names nothing in it.
        if found.module != ROOT || !found.is_module {
            passed.push(found.module);
        }
        passed
    }

    /// The modules that a glob import passes: that of which it takes everything, and those that define the names it takes.
    fn reached_by_glob(&self, from: usize, path: &[String]) -> Vec<usize> {
        let mut reached = self.passed(from, path);
        let Some(all) = self.module_at(from, path, 0) else {
            return reached;
        };
        let here = &self.modules[from];
        let taken = here.words.iter().filter(|word| {
            let is_known_here = here.defined.contains(*word) || here.imports.contains_key(*word);
            !is_known_here && self.has(all, word)
        });
        for word in taken {
            let mut path = path.to_vec();
            path.push(word.clone());
            reached.extend(self.passed(from, &path));
        }
        reached.sort_unstable();
        reached.dedup();
        reached
    }

    /// True if a module has this name: an item of its own, a child, or an import.
    fn has(&self, module: usize, name: &str) -> bool {
        let module = &self.modules[module];
        module.defined.contains(name)
            || module.children.contains_key(name)
            || module.imports.contains_key(name)
    }

    /// The module at the end of a path, if it ends at one.
    fn module_at(&self, from: usize, path: &[String], reexports: usize) -> Option<usize> {
        let found = self.follow(from, path, &mut Vec::new(), reexports)?;
        found.is_module.then_some(found.module)
    }

    /// The path of a name that a module has from a glob import.
    fn path_by_glob(&self, module: usize, name: &str, reexports: usize) -> Option<Path> {
        let here = &self.modules[module];
        if here.defined.contains(name) || reexports > MOST_REEXPORTS {
            return None;
        }
        here.globs.iter().find_map(|path| {
            let reexports = reexports + COST_OF_GLOB;
            let all = self.module_at(module, path, reexports)?;
            let is_there = all != module
                && (self.has(all, name) || self.path_by_glob(all, name, reexports).is_some());
            let mut path = path.clone();
            path.push(name.to_owned());
            is_there.then_some(path)
        })
    }

    /// The end of a path: the module that defines its name, or a module itself. `None` for a name of another crate.
    fn follow(
        &self,
        from: usize,
        path: &[String],
        passed: &mut Vec<usize>,
        reexports: usize,
    ) -> Option<Found> {
        if reexports > MOST_REEXPORTS {
            return None;
        }
        let mut here = from;
        let mut rest = path;
        let mut is_inside = false;
        while let [first, behind @ ..] = rest {
            match first.as_str() {
                "crate" => here = ROOT,
                "self" => {}
                "super" => here = *self.modules[here].ancestors.first()?,
                _ => break,
            }
            rest = behind;
            is_inside = true;
        }
        while let [first, behind @ ..] = rest {
            let module = &self.modules[here];
            let import = || {
                let import = module.imports.get(first).cloned();
                import.or_else(|| self.path_by_glob(here, first, reexports))
            };
            if let Some(&child) = module.children.get(first) {
                here = child;
            } else if let Some(import) = import()
                && import != path
            {
                if is_inside {
                    passed.push(here);
                }
                let mut on_the_way = Vec::new();
                let found = self.follow(here, &import, &mut on_the_way, reexports + 1);
                passed.extend(on_the_way);
                match found {
                    Some(found) if found.is_module => here = found.module,
                    Some(found) => return Some(found),
                    // Another crate defines the name. An import through a module of ours counts as one of that module; the root
                    // only hands it on.
                    None if here == ROOT => return None,
                    None => {
                        return is_inside.then_some(Found {
                            is_foreign: true,
                            ..Found::item_in(here)
                        });
                    }
                }
            } else {
                return is_inside.then_some(Found::item_in(here));
            }
            is_inside = true;
            rest = behind;
            if !rest.is_empty() {
                passed.push(here);
            }
        }
        is_inside.then_some(Found {
            is_module: true,
            ..Found::item_in(here)
        })
    }

    /// The rooms and the parent of an import, if it runs from room to room.
    fn edge(&self, from: usize, to: usize) -> Option<(usize, usize, usize)> {
        if from == to {
            return None;
        }
        let line = |module: usize| -> Vec<usize> {
            let mut line = self.modules[module].ancestors.clone();
            line.reverse();
            line.push(module);
            line
        };
        let (froms, tos) = (line(from), line(to));
        let shared = froms.iter().zip(&tos).take_while(|(a, b)| a == b).count();
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

/// A module that was declared and not yet read.
struct Waiting {
    name: Vec<String>,
    file: String,
    ancestors: Vec<usize>,
    body: Option<Body>,
}

#[derive(Debug)]
struct Found {
    module: usize,
    is_module: bool,
    /// True if another crate defines the name that the module has.
    is_foreign: bool,
}

impl Found {
    fn item_in(module: usize) -> Self {
        Self {
            module,
            is_module: false,
            is_foreign: false,
        }
    }
}

fn file_of(sources: &Sources, name: &[String]) -> Result<String, String> {
    let path = name.join("/");
    [format!("{path}.rs"), format!("{path}/mod.rs")]
        .into_iter()
        .find(|file| sources.contains_key(file))
        .ok_or_else(|| format!("module {} has no file", name.join("::")))
}
