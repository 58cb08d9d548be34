"""How a report page looks, and the few lines of script that make it handier.

Owns: CSS, the script. Must not know: what is on the page.

The page is whole without the script. The script reads the page's own tables and nothing else.
"""

from __future__ import annotations

CSS = """
:root{color-scheme:light dark;--bg:#f6f6f3;--panel:#fff;--ink:#1b1f23;--soft:#59636e;--rule:#dfe1dc;
--grid:#ebece8;--a:#0868ac;--b:#c2410c;--c:#0f766e;--d:#8e4585;--e:#8a6d00;--f:#7d8791;
--h0:#edeeea;--h1:#cfe1f2;--h2:#93c4df;--h3:#4a98c9;--h4:#1764ab;--h5:#08306b;
--bad:#b3261e;--good:#1a6b3c;--wash:.16}
@media (prefers-color-scheme:dark){:root{--bg:#121417;--panel:#1a1d21;--ink:#e7e9ec;--soft:#9aa4ae;
--rule:#30353b;--grid:#262a2f;--a:#58a6e8;--b:#f28b50;--c:#3fbfae;--d:#d28ac8;--e:#d9b84a;
--f:#8b949e;--h0:#23272c;--h1:#12395c;--h2:#175a8f;--h3:#2f81bd;--h4:#6bb0e0;--h5:#c4e2f7;
--bad:#ff8a80;--good:#7fd39b;--wash:.22}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-padding-top:3.6rem}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;
font-variant-numeric:tabular-nums}
main,header.top,footer,nav .in{max-width:1180px;margin:0 auto;padding:0 20px}
header.top{padding-top:32px;padding-bottom:8px}
h1{font-size:30px;line-height:1.2;font-weight:650;letter-spacing:-.015em;margin:0 0 6px;
overflow-wrap:anywhere}
h2{font-size:22px;line-height:1.25;font-weight:650;letter-spacing:-.01em;margin:0 0 4px}
h3{font-size:15px;font-weight:600;margin:20px 0 8px}
p{margin:0 0 12px;max-width:72ch}
a{color:var(--a)}
.soft,.about{color:var(--soft)}
.about{font-size:13px}
.about p{margin:0 0 2px;max-width:none;overflow-wrap:anywhere}
.strip{display:grid;grid-template-columns:repeat(6,1fr);gap:1px;background:var(--rule);
border:1px solid var(--rule);border-radius:8px;overflow:hidden;margin:20px 0 0;padding:0}
.strip div{background:var(--panel);padding:14px 16px;min-width:0}
.strip dt{font-size:12px;color:var(--soft);margin:0}
.strip dd{margin:0}
.strip dd b{display:block;font-size:24px;line-height:1.2;font-weight:650;letter-spacing:-.02em;
white-space:nowrap}
.strip dd span{font-size:12px;color:var(--soft)}
.strip .bad b{color:var(--bad)}
nav{position:sticky;top:0;z-index:3;background:var(--bg);border-bottom:1px solid var(--rule);
margin-top:20px}
nav .in{display:flex;gap:4px 18px;align-items:center;overflow-x:auto;scrollbar-width:none;
font-size:13px;min-height:44px}
nav a{white-space:nowrap;color:var(--soft);text-decoration:none;padding:12px 0}
nav a:hover,nav a:focus-visible{color:var(--ink);text-decoration:underline}
nav label{margin-left:auto;white-space:nowrap;color:var(--soft);position:sticky;right:-20px;
background:var(--bg);padding:6px 20px 6px 14px;margin-right:-20px}
select{font:inherit;color:var(--ink);background:var(--panel);border:1px solid var(--rule);
border-radius:6px;padding:4px 8px;max-width:15em}
section{padding:34px 0 6px}
section>.answer{font-size:17px;line-height:1.45;margin:0 0 16px;overflow-wrap:anywhere}
.answer b{font-weight:650}
.flag{display:inline-block;font-size:12px;font-weight:650;line-height:1;padding:4px 8px;
border-radius:99px;border:1px solid currentColor;margin-right:6px;vertical-align:2px}
.flag.bad{color:var(--bad)}.flag.good{color:var(--good)}.flag.none{color:var(--soft)}
.grid2{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:14px}
.grid2>.wide{grid-column:1/-1}
.panel,figure{background:var(--panel);border:1px solid var(--rule);border-radius:8px;margin:0;
padding:14px 16px;min-width:0}
.panel{margin-bottom:14px}
.panel>:last-child{margin-bottom:0}
.grid2>.panel{margin-bottom:0;align-self:start}
.grid2>.panel:last-child:nth-child(odd){grid-column:1/-1}
figcaption,.panel>h3{font-size:14px;line-height:1.35;margin:0 0 6px}
.panel>h3 span{font-weight:400;color:var(--soft);font-size:12px}
.after{margin-top:14px}.strips,.topics{margin:0 0 14px}div+.topics{margin-top:14px}
figcaption span{color:var(--soft);font-size:12px}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 14px;margin:0 0 8px;padding:0;
font-size:12px;color:var(--soft)}
.legend li{display:flex;align-items:center;gap:6px}
.legend b{color:var(--ink);font-weight:600}
.counts{font-size:13px;margin:10px 0 0;gap:4px 20px}
.key{width:16px;height:0;border-top:2px solid}
.key.area,.key.stack{height:9px;opacity:.85}
.swatch{width:11px;height:11px;border-radius:2px}
.plot{display:grid;grid-template:1fr 20px/auto 1fr;height:190px;position:relative}
.plot svg{width:100%;height:100%;display:block;overflow:visible;min-width:0;min-height:0}
.left{position:relative;width:56px;font-size:11px;color:var(--soft)}
.left span{position:absolute;right:8px;transform:translateY(-50%);white-space:nowrap;line-height:1}
.below{grid-column:2;position:relative;font-size:11px;color:var(--soft)}
.below span{position:absolute;top:6px;transform:translateX(-50%);white-space:nowrap;line-height:1}
.below .day{color:var(--ink)}
.below .first{transform:none}.below .last{transform:translateX(-100%)}
.heat .plot{box-sizing:content-box;padding-bottom:20px;grid-template:1fr/auto 1fr}
.heat .below{position:absolute;left:0;right:0;bottom:0;height:20px}
.heat .left{width:132px}
.heat .left span{max-width:122px;overflow:hidden;text-overflow:ellipsis;line-height:1.3}
path{vector-effect:non-scaling-stroke}
.grid{stroke:var(--grid);stroke-width:1;fill:none}
.stroke{fill:none;stroke:currentColor;stroke-width:1.75;stroke-linecap:round;stroke-linejoin:round}
.fill{stroke:none;fill:currentColor;fill-opacity:var(--wash)}
.fill.stack{fill-opacity:.55}.stroke.stack{stroke-width:.75}
.a{color:var(--a)}.b{color:var(--b)}.c{color:var(--c)}.d{color:var(--d)}.e{color:var(--e)}
.f{color:var(--f)}
.stroke.e{stroke-dasharray:1 4}.key.e{border-top-style:dotted}
.stroke.b{stroke-dasharray:6 3}.stroke.dot,.stroke.stack{stroke-dasharray:none}
.stroke.dot{stroke-width:6}.key.b{border-top-style:dashed}
i.key.area,i.key.stack{background:currentColor}
.key.area,.key.stack{border:0;border-radius:2px}
.swatch.a,.shares .a,.bar .a{background:var(--a)}.swatch.b,.shares .b,.bar .b{background:var(--b)}
.swatch.c,.shares .c,.bar .c{background:var(--c)}.swatch.d,.shares .d,.bar .d{background:var(--d)}
.swatch.e,.shares .e,.bar .e{background:var(--e)}.swatch.f,.shares .f,.bar .f{background:var(--f)}
.h0{fill:var(--h0)}.h1{fill:var(--h1)}.h2{fill:var(--h2)}.h3{fill:var(--h3)}.h4{fill:var(--h4)}
.h5{fill:var(--h5)}
i.h0{background:var(--h0)}i.h1{background:var(--h1)}i.h2{background:var(--h2)}
i.h3{background:var(--h3)}i.h4{background:var(--h4)}i.h5{background:var(--h5)}
.shares{display:flex;height:22px;gap:2px;border-radius:4px;overflow:hidden}
.shares i{min-width:3px;flex:1 1 0}
.note{font-size:12px;color:var(--soft);margin:8px 0 0;max-width:none}
.empty{color:var(--soft);margin:0;padding:22px 0;max-width:60ch}
.none{color:var(--soft)}
details{margin:10px 0 0}
summary{cursor:pointer;font-size:12px;color:var(--soft);width:max-content;max-width:100%}
summary:hover{color:var(--ink)}
.scroll{overflow:auto;max-height:420px;overscroll-behavior-x:contain}
.scroll:focus-visible{outline:2px solid var(--a)}
table{border-collapse:collapse;width:100%;font-size:13px;line-height:1.35}
th{font-size:12px;font-weight:500;color:var(--soft);text-align:left;position:sticky;top:0;
background:var(--panel);white-space:nowrap}
th,td{padding:6px 14px 6px 0;border-bottom:1px solid var(--grid);vertical-align:top}
th:last-child,td:last-child{padding-right:0}
td{overflow-wrap:anywhere;min-width:3.2em}
td:not(.n){min-width:7em}td:first-child{min-width:8em}
.n{text-align:right;white-space:nowrap;overflow-wrap:normal}
caption{caption-side:bottom;text-align:left;font-size:12px;color:var(--soft);padding:8px 0 0}
table.numbers{width:auto;min-width:50%;font-size:12px}
table.numbers td,table.numbers th{padding:3px 18px 3px 0;white-space:nowrap}
.bar{display:grid;grid-template-columns:minmax(40px,1fr) auto;gap:8px;align-items:center;
min-width:110px}
.bar i{height:9px;border-radius:2px;min-width:2px}
.bar span{text-align:right;white-space:nowrap}
.spark{width:110px;height:22px;display:block}
ol.path{display:flex;flex-wrap:wrap;gap:3px 0;list-style:none;margin:0;padding:0}
.path li{display:inline-flex;align-items:center;white-space:nowrap}
.path li+li::before{content:"›";color:var(--soft);padding:0 5px}
ol.path span{border-left:3px solid currentColor;padding-left:5px}
ol.path bdi{color:var(--ink)}
.answer .path span{font-weight:600}
.topic{margin:0 0 14px;border-top:1px solid var(--rule);padding-top:6px}
.topic>summary{font-size:15px;font-weight:600;color:var(--ink);padding:8px 0;width:auto;
overflow-wrap:anywhere}
.topic>summary span{font-weight:400;color:var(--soft);font-size:13px}
footer{padding-top:28px;padding-bottom:48px;font-size:12px;color:var(--soft)}
.tip{position:absolute;z-index:2;pointer-events:none;background:var(--ink);color:var(--bg);
font-size:12px;line-height:1.45;padding:6px 9px;border-radius:5px;white-space:nowrap;top:4px;
max-width:340px;overflow:hidden;text-overflow:ellipsis}
.hair{position:absolute;top:0;bottom:20px;width:1px;background:var(--soft);pointer-events:none}
[hidden]{display:none!important}
@media (max-width:900px){.strip{grid-template-columns:repeat(3,1fr)}
.grid2{grid-template-columns:minmax(0,1fr)}}
@media (max-width:520px){main,header.top,footer,nav .in{padding-left:14px;padding-right:14px}
.strip{grid-template-columns:repeat(2,1fr)}h1{font-size:25px}h2{font-size:20px}
section>.answer{font-size:16px}.panel,figure{padding:12px}.strip dd b{font-size:21px}
.below .minor{display:none}.plot{height:170px}
.heat .left,.heat .left span{max-width:88px;width:88px}
.left{width:46px}select{max-width:9em}}
@media print{:root{color-scheme:light;--bg:#fff;--panel:#fff;--ink:#000;--soft:#444;--rule:#bbb;
--grid:#ddd;--a:#0868ac;--b:#c2410c;--c:#0f766e;--d:#8e4585;--e:#8a6d00;--f:#7d8791;--h0:#edeeea;
--h1:#cfe1f2;--h2:#93c4df;--h3:#4a98c9;--h4:#1764ab;--h5:#08306b}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
nav,figure details,.tip,.hair{display:none!important}
main,header.top,footer{max-width:none;padding-left:0;padding-right:0}
figure,.panel,tr,.strip{break-inside:avoid}h2,h3,.answer{break-after:avoid}
.scroll{max-height:none;overflow:visible}body{font-size:11pt}
.topic::details-content{content-visibility:visible;display:block}}
"""

SCRIPT = """
'use strict';
(function () {
  var all = document.querySelectorAll('[data-topic]');
  var chooser = document.querySelector('nav label');
  if (chooser) {
    chooser.hidden = false;
    chooser.querySelector('select').addEventListener('change', function (event) {
      var wanted = event.target.value;
      all.forEach(function (part) {
        var is_mine = part.dataset.topic === wanted;
        part.hidden = wanted !== '*' && !is_mine;
        if (part.tagName === 'DETAILS') { part.open = is_mine || part.dataset.open === '1'; }
      });
    });
  }
  document.querySelectorAll('figure[data-steps]').forEach(function (figure) {
    var plot = figure.querySelector('.plot'), svg = plot.querySelector('svg');
    var rows = figure.querySelector('table').tBodies[0].rows;
    var heads = figure.querySelector('table').tHead.rows[0].cells;
    var is_heat = figure.classList.contains('heat');
    var tip = document.createElement('div'), hair = document.createElement('div');
    tip.className = 'tip'; hair.className = 'hair'; tip.hidden = hair.hidden = true;
    plot.append(hair, tip);
    function line(text) {
      var made = document.createElement('div');
      made.textContent = text;
      tip.append(made);
    }
    plot.addEventListener('pointermove', function (event) {
      var box = svg.getBoundingClientRect(), outer = plot.getBoundingClientRect();
      var part = (event.clientX - box.left) / box.width;
      var is_out = part < 0 || part >= 1;
      tip.hidden = hair.hidden = is_out;
      if (is_out) { return; }
      var row = rows[Math.floor(part * rows.length)];
      var column = is_heat
        ? 1 + Math.floor((event.clientY - box.top) / box.height * (heads.length - 1)) : 0;
      tip.textContent = '';
      line(row.cells[0].textContent + ' UTC');
      for (var n = 1; n < heads.length; n++) {
        if (!is_heat || n === column) {
          line(heads[n].textContent + ': ' + row.cells[n].textContent);
        }
      }
      var middle = (Math.floor(part * rows.length) + 0.5) / rows.length;
      var x = box.left - outer.left + middle * box.width;
      hair.style.left = x + 'px';
      tip.style.left = part > 0.5 ? 'auto' : x + 10 + 'px';
      tip.style.right = part > 0.5 ? outer.width - x + 10 + 'px' : 'auto';
    });
    plot.addEventListener('pointerleave', function () { tip.hidden = hair.hidden = true; });
  });
})();
"""
