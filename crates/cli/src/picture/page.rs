//! A page of HTML with charts and tables. It has no script, and its policy forbids the browser to fetch anything.

use std::fmt::Write as _;

use super::Chart;
use super::escape::escape;

/// The look of all pages.
const STYLE: &str = "\
body{font:15px/1.45 sans-serif;color:#222;background:#fff;max-width:52rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
svg{max-width:100%;height:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid #ddd;overflow-wrap:anywhere}
meter{width:8rem}
@media print{h2{break-after:avoid}svg,tr{break-inside:avoid}}";

/// A page.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) title: String,
    pub(crate) sections: Vec<Section>,
}

/// A part of a page.
#[derive(Debug)]
pub(crate) enum Section {
    Chart(Chart),
    Table {
        title: String,
        names: Vec<&'static str>,
        rows: Vec<Vec<String>>,
        /// The length of the bar in each row, of the longest.
        bars: Vec<u64>,
    },
    Words {
        title: String,
        lines: Vec<String>,
    },
}

impl Page {
    /// The charts alone.
    pub(super) fn charts(&self) -> impl Iterator<Item = &Chart> + Clone {
        self.sections.iter().filter_map(|section| match section {
            Section::Chart(chart) => Some(chart),
            Section::Table { .. } | Section::Words { .. } => None,
        })
    }

    /// The page as a file.
    pub(crate) fn html(&self) -> String {
        let title = escape(&self.title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        for section in &self.sections {
            section.write(&mut html);
        }
        html + "</body>\n</html>\n"
    }
}

impl Section {
    fn write(&self, html: &mut String) {
        let mut put = |text: &str| {
            html.push_str(text);
            html.push('\n');
        };
        match self {
            Self::Chart(chart) => put(&format!("<figure>\n{}</figure>", chart.svg())),
            Self::Words { title, lines } => {
                put(&format!("<h2>{}</h2>", escape(title)));
                for line in lines {
                    put(&format!("<p>{}</p>", escape(line)));
                }
            }
            Self::Table {
                title,
                names,
                rows,
                bars,
            } => {
                put(&format!("<h2>{}</h2>\n<table>", escape(title)));
                let most = bars.iter().copied().max().unwrap_or_default().max(1);
                let mut heads = names.iter().fold(String::new(), |mut heads, name| {
                    let _written = write!(heads, "<th>{}</th>", escape(name));
                    heads
                });
                if !bars.is_empty() {
                    heads.push_str("<th></th>");
                }
                put(&format!("<tr>{heads}</tr>"));
                for (number, row) in rows.iter().enumerate() {
                    let mut cells = row.iter().fold(String::new(), |mut cells, cell| {
                        let _written = write!(cells, "<td><bdi>{}</bdi></td>", escape(cell));
                        cells
                    });
                    if let Some(bar) = bars.get(number) {
                        let _written = write!(
                            cells,
                            "<td><meter min=\"0\" max=\"{most}\" value=\"{bar}\"></meter></td>"
                        );
                    }
                    put(&format!("<tr>{cells}</tr>"));
                }
                put("</table>");
            }
        }
    }
}
