//! Scripts that contain only what the calls of one shape need.
//!
//! A rule's file in `lua/` has a function for each step: it parses a charge, reads a state, brings it to now, judges, takes, and
//! forms the state anew. The general script calls these functions on tables. Here the same lines stand one after the other, and
//! the fields of the tables are locals: `state.count` of the second charge is `s2_count`, and `charge.limit` is `c2_limit`.
//!
//! A skeleton says where they stand. `--@each`, `--@budgets`, `--@ban` and `--@id` repeat the lines down to `--@end` for these
//! charges, of which `$` is the number. `--@granting` and `--@with_id` keep lines for calls for as much as there is, and for shapes
//! with an id. Any other `--@` is the name of a part of `shape.lua`, or of a step of the charge's rule. `ban.` and `id.` are the charges
//! of the ban and of the id.

use std::collections::BTreeSet;

use super::shape::{Rule, Shape};

const HEAD: &str = include_str!("../../lua/head.lua");
const ONE: &str = include_str!("../../lua/one.lua");
const MANY: &str = include_str!("../../lua/many.lua");
const PARTS: &str = include_str!("../../lua/shape.lua");

/// The steps of a request for as much as there is, of any rule.
const GRANT: &str = include_str!("../../lua/grant.lua");

/// What no general script contains.
#[cfg(test)]
pub(super) const SKELETONS: [&str; 3] = [ONE, MANY, PARTS];

/// Names that cost a look into a table, which a script without them need not pay.
const NAMES: [(&str, &str); 9] = [
    ("KEYS", "KEYS"),
    ("ARGV", "ARGV"),
    ("spread", "unpack"),
    ("pack", "struct.pack"),
    ("unpack", "struct.unpack"),
    ("byte", "string.byte"),
    ("floor", "math.floor"),
    ("max", "math.max"),
    ("min", "math.min"),
];

/// The most names in one statement.
const IN_A_LINE: usize = 40;

/// The text of the script for calls of this shape.
pub(super) fn compose(shape: &Shape) -> String {
    let rules: Vec<Rule> = shape.rules().collect();
    let skeleton = if shape.is_alone { ONE } else { MANY };
    let lines: Vec<&str> = skeleton.lines().map(str::trim_start).collect();
    let numbers = 1..=rules.len();
    let keys: Vec<String> = numbers.map(|number| format!("key{number}")).collect();
    let body = expand(&lines, shape, None)
        .replace("WIDTH", &rules.len().to_string())
        .replace("KEY_LIST", &keys.join(", "))
        .replace("LIST", &format!("'\\{}'", 0x90 + rules.len()));
    let mut helpers = String::new();
    if rules.contains(&Rule::SlidingWindow) {
        let product = step(Rule::SlidingWindow, "product");
        helpers = format!("local function product(a, b)\n{product}end\n");
    }
    let body = helpers + &body;
    let used: BTreeSet<&str> = words(&body).collect();
    let (names, values): (Vec<_>, Vec<_>) = { NAMES.into_iter() }
        .filter(|(name, _)| used.contains(name))
        .unzip();
    let fields: Vec<&str> = used.into_iter().filter(|word| is_field(word)).collect();
    let mut script = code(HEAD);
    script += &format!("local {} = {}\n", names.join(", "), values.join(", "));
    for some in fields.chunks(IN_A_LINE) {
        script += &format!("local {}\n", some.join(", "));
    }
    script + &body
}

/// A text without comments and indentation.
fn code(text: &str) -> String {
    let lines = text.lines().map(str::trim_start);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The lines of a skeleton, with blocks repeated and steps filled in; within a block for the charge of this number.
fn expand(lines: &[&str], shape: &Shape, number: Option<usize>) -> String {
    let rules: &[Rule] = &shape.rules().collect::<Vec<_>>();
    let (mut expanded, mut rest) = (String::new(), lines);
    while let Some((line, behind)) = rest.split_first() {
        rest = behind;
        let Some(name) = line.strip_prefix("--@") else {
            expanded += &named(&code(line), rules, number);
            continue;
        };
        let Some(numbers) = block(name, shape, number) else {
            let filled = match part(name) {
                Some(part) => expand(&part, shape, number),
                None => {
                    let rule = number.and_then(|number| rules.get(number - 1));
                    let step = rule.map_or_else(String::new, |rule| step(*rule, name));
                    named(&step, rules, number)
                }
            };
            expanded = expanded + "do\n" + &filled + "end\n";
            continue;
        };
        let length = length(rest, shape);
        for number in numbers {
            expanded += &expand(&rest[..length], shape, number);
        }
        rest = &rest[length + 1..];
    }
    expanded
}

/// The numbers of the charges for which a block of this name stands, if that is the name of a block.
fn block(name: &str, shape: &Shape, number: Option<usize>) -> Option<Vec<Option<usize>>> {
    let rules: &[Rule] = &shape.rules().collect::<Vec<_>>();
    let of = |is_such: fn(Rule) -> bool| {
        let rules = rules.iter().enumerate();
        let such = rules.filter(|(_, rule)| is_such(**rule));
        such.map(|(position, _)| Some(position + 1)).collect()
    };
    let once_if = |is_so: bool| vec![number; usize::from(is_so)];
    Some(match name {
        "each" => of(|_| true),
        "budgets" => of(Rule::is_budget),
        "ban" => of(|rule| rule == Rule::Ban),
        "id" => of(|rule| rule == Rule::Once),
        "granting" => once_if(shape.is_granting),
        "with_id" => once_if(rules.contains(&Rule::Once)),
        _ => return None,
    })
}

/// The number of lines down to the end of a block.
fn length(lines: &[&str], shape: &Shape) -> usize {
    let mut open = 1;
    let is_end = |line: &&str| {
        let name = line.strip_prefix("--@").unwrap_or_default();
        open += i32::from(block(name, shape, None).is_some()) - i32::from(name == "end");
        open == 0
    };
    lines.iter().position(is_end).unwrap_or(lines.len())
}

/// The lines of this part of both skeletons.
fn part(name: &str) -> Option<Vec<&'static str>> {
    let mut lines = PARTS.lines().map(str::trim_start);
    lines.find(|line| line.strip_prefix("--# ") == Some(name))?;
    Some(lines.take_while(|line| !line.starts_with("--# ")).collect())
}

/// The lines of a step of a rule.
fn step(rule: Rule, name: &str) -> String {
    let lines = rule.source().lines().chain(GRANT.lines());
    let signature = format!("  local function {name}(");
    let lines = lines
        .skip_while(|line| !line.starts_with(&signature))
        .skip(1);
    let lines = lines.take_while(|line| *line != "  end");
    // The place behind the charge is a local here.
    let lines = lines.filter(|line| *line != "    return pos");
    without_calls(&lines.map(code).collect::<String>())
}

/// The text with the shared check of numbers in its places, since a call costs more than the check.
fn without_calls(text: &str) -> String {
    let mut parts = text.split("is_whole(");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (number, behind) = part.split_once(')').unwrap_or((part, ""));
        format!("{text}({number} >= 0 and {number} < 2 ^ 53 and {number} % 1 == 0){behind}")
    })
}

/// The text with the names of this charge's locals.
fn named(text: &str, rules: &[Rule], number: Option<usize>) -> String {
    let Some(number) = number else {
        return text.to_owned();
    };
    let number_of = |rule| {
        let position = rules.iter().position(|other| *other == rule);
        position.map_or(0, |position| position + 1)
    };
    let others = (1..=rules.len()).filter(|other| *other != number);
    let elsewhere = others.map(|other| format!(" or held{number} == key{other}"));
    let elsewhere = format!("false{}", elsewhere.collect::<String>());
    let usual = rules.get(number - 1).map_or(0, |rule| rule.usual_length());
    text.replace("state.", &format!("s{number}_"))
        .replace("charge.", &format!("c{number}_"))
        .replace("ban.", &format!("c{}_", number_of(Rule::Ban)))
        .replace("id.", &format!("c{}_", number_of(Rule::Once)))
        .replace("IS_HELD_ELSEWHERE", &elsewhere)
        .replace("USUAL", &usual.to_string())
        .replace("HEADER", &format!("'\\{}'", 0xa0 + usual))
        .replace('$', &number.to_string())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
}

/// Says whether a word names the local of a field.
fn is_field(word: &str) -> bool {
    matches!(word.as_bytes(), [b's' | b'c', b'0'..=b'9', b'_', ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a run of one charge of each of these rules, whatever it says.
    fn shape(rules: &[u8], times: u8) -> Option<Shape> {
        const LENGTHS: [usize; 13] = [0, 43, 34, 26, 34, 26, 18, 52, 48, 42, 74, 81, 23];
        let mut run = vec![times, 0, u8::try_from(rules.len()).unwrap()];
        for &rule in rules {
            let end = run.len() + LENGTHS[usize::from(rule)];
            run.extend([rule, 0]);
            run.resize(end, 0);
        }
        run.extend(1..=u8::try_from(rules.len()).unwrap());
        Shape::of(&[run], rules.len())
    }

    #[test]
    fn a_script_of_a_shape_has_no_more_than_16_kib_and_each_field_and_step_has_its_place() {
        let budgets = [1, 2, 3, 4, 9, 10];
        let mut shapes: Vec<Vec<u8>> = Vec::new();
        for one in budgets {
            shapes.extend([vec![one], vec![one, 8], vec![one, 12], vec![one, 8, 12]]);
            for other in budgets {
                shapes.extend([vec![one, other], vec![one, other, 8], vec![one, other, 12]]);
                shapes.extend(budgets.map(|third| vec![one, other, third]));
            }
        }
        for rules in shapes {
            for times in [1, 2] {
                let shape = shape(&rules, times).unwrap();
                assert_eq!(shape.is_alone, times == 1);
                let text = compose(&shape);
                assert!(text.len() <= 16 << 10, "{rules:?}: {}", text.len());
                assert_eq!(text.matches("'TIME'").count(), 1);
                for left in ["--@", "$", "state.", "charge.", "ban.", "id."] {
                    assert!(!text.contains(left), "{rules:?}: {left} in {text}");
                }
                // A step that its rule does not have would be an empty block.
                let is_empty = text.contains("do\nend\n");
                assert!(!is_empty || rules.contains(&8), "{rules:?}: {text}");
            }
        }
    }

    #[test]
    fn what_no_script_of_a_shape_decides_has_none() {
        for rules in [
            &[][..],
            &[5],
            &[6],
            &[8],
            &[8, 1],
            &[1, 8, 8],
            &[1, 8, 1],
            &[12],
            &[8, 12],
            &[1, 12, 8],
            &[1, 12, 12],
            &[1, 2, 3, 4],
        ] {
            assert_eq!(shape(rules, 1), None, "{rules:?}");
        }
    }
}
