//! The modules of one crate, and their imports.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::{fs, io};

use crate::circle::{Graph, Pair};
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

#[derive(Debug)]
struct Module {
    /// The names from the root to here.
    name: Vec<String>,
    file: String,
    /// The parent, the parent's parent, up to the root.
    ancestors: Vec<usize>,
    is_private: bool,
    children: BTreeMap<String, usize>,
    imports: BTreeMap<String, Path>,
    mentions: Vec<Mention>,
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
                    let inside = path.strip_prefix(src).unwrap_or(&path);
                    let name = inside.to_string_lossy().replace('\\', "/");
                    sources.insert(name, fs::read_to_string(&path)?);
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
            is_private: true,
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
                    is_private: child.is_private,
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
                is_private: next.is_private,
                children: BTreeMap::new(),
                imports: (body.imports.into_iter())
                    .filter_map(|import| Some((import.name?, import.path)))
                    .collect(),
                mentions: body.mentions,
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

    /// A sentence for each circle outside of the pairs, each import that runs upward, and each pair that is no longer one.
    #[must_use]
    pub fn violations(&self, pairs: &[Pair<'_>]) -> Vec<String> {
        let mut graphs: BTreeMap<usize, Graph> = BTreeMap::new();
        let mut violations = Vec::new();
        for (from, module) in self.modules.iter().enumerate() {
            for mention in &module.mentions {
                let line = format!("{}:{}", module.file, mention.line);
                let words = mention.path.join("::");
                for to in self.passed(from, &mention.path) {
                    if to == ROOT && from != ROOT {
                        violations.push(format!(
                            "{line} imports {words}, which the root of the crate defines: an import that runs upward"
                        ));
                    }
                    if let Some((level, from, to)) = self.edge(from, to) {
                        let said = format!("{line} names {words}");
                        let graph = graphs.entry(level).or_default();
                        graph.add(self.name(from), self.name(to), said);
                    }
                }
            }
        }
        let mut is_used = vec![false; pairs.len()];
        for graph in graphs.values_mut() {
            for (pair, is_used) in pairs.iter().zip(&mut is_used) {
                *is_used |= graph.join(pair);
            }
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
        passed.retain(|module| *module != ROOT);
        // A path that ends at a module, such as `use crate::name`, names nothing in it.
        if found.module != ROOT || !found.is_module {
            passed.push(found.module);
        }
        passed
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
            if let Some(&child) = module.children.get(first) {
                here = child;
            } else if let Some(import) = module.imports.get(first)
                && import != path
            {
                if is_inside {
                    passed.push(here);
                }
                let mut on_the_way = Vec::new();
                let found = self.follow(here, import, &mut on_the_way, reexports + 1);
                passed.extend(on_the_way);
                match found {
                    Some(found) if found.is_module => here = found.module,
                    Some(found) => return Some(found),
                    // Another crate defines the name. An import through a module of ours counts as one of that module; the root
                    // only hands it on.
                    None if here == ROOT => return None,
                    None => return is_inside.then_some(Found::item_in(here)),
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
            module: here,
            is_module: true,
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
            // Parent and child: one room unless others can name the child.
            (None, Some(&child)) if level != ROOT && !self.modules[child].is_private => {
                Some((level, level, child))
            }
            (Some(&child), None) if level != ROOT && !self.modules[child].is_private => {
                Some((level, child, level))
            }
            _ => None,
        }
    }
}

/// A module that was declared and not yet read.
struct Waiting {
    name: Vec<String>,
    file: String,
    ancestors: Vec<usize>,
    is_private: bool,
    body: Option<Body>,
}

#[derive(Debug)]
struct Found {
    module: usize,
    is_module: bool,
}

impl Found {
    fn item_in(module: usize) -> Self {
        Self {
            module,
            is_module: false,
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
