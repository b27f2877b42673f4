/** The style of the console: light and dark, from a phone's width up. On a phone the rows of tables are cards. */
export const consoleStyle = `
:root{color-scheme:light dark;--ink:light-dark(#16202b,#e6ebf0);--soft:light-dark(#505e6e,#9dabba);--line:light-dark(#dde3e9,#2a3541);--card:light-dark(#fff,#161d25);--back:light-dark(#f3f5f8,#0e1318);--good:light-dark(#15703f,#5fd08f);--bad:light-dark(#b3261e,#ff8a80);--busy:light-dark(#855600,#f0b84d);--link:light-dark(#1257c0,#7fb2ff);--four:light-dark(#7a3fb0,#c79bf2)}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
header,main,footer{max-width:80rem;margin:0 auto;padding:1rem}
header{display:flex;flex-wrap:wrap;gap:.25rem 1.5rem;align-items:baseline;padding-top:1.5rem}
h1{font-size:1.25rem;margin:0}
h2{font-size:1rem;margin:0 0 .5rem}
h3{font-size:.9rem;margin:0;display:inline;font-weight:600}
p{margin:0}
.soft{color:var(--soft)}
#banner{width:100%;margin:.75rem 0 0;padding:.7rem .9rem;border-radius:.5rem;background:var(--card);border:1px solid var(--line);border-left:.4rem solid var(--soft)}
#banner.good{border-left-color:var(--good)}#banner.bad{border-left-color:var(--bad)}#banner.busy{border-left-color:var(--busy)}
#state{font-size:1.1rem}
.good #state{color:var(--good)}.bad #state{color:var(--bad)}.busy #state{color:var(--busy)}
#since{color:var(--soft)}
#reasons{margin:.4rem 0 0;padding-left:1.2rem;overflow-wrap:anywhere}#reasons:empty{display:none}
#reasons span{display:block;color:var(--soft)}
main{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));padding-top:0}
section{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:1rem;min-width:0}
section.wide{grid-column:1/-1}
.charts{display:grid;gap:1rem 1.5rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr))}
figure{margin:0;min-width:0}
.chart{height:170px;position:relative;overflow:hidden}
.key{display:flex;flex-wrap:wrap;gap:.1rem 1rem;font-size:.85rem;color:var(--soft);font-variant-numeric:tabular-nums}
.key i{display:inline-block;width:.9em;height:.25em;border-radius:.1em;margin-right:.4em;vertical-align:middle}
.c1{background:var(--link)}.c2{background:var(--good)}.c3{background:var(--bad)}.c4{background:var(--four)}.c5{background:var(--busy)}
.uplot,.uplot *{box-sizing:border-box}.u-wrap{position:relative;user-select:none}.u-over,.u-under,.u-axis{position:absolute}.u-under{overflow:hidden}.uplot canvas{display:block;position:relative;width:100%;height:100%}.u-select,.u-cursor-x,.u-cursor-y,.u-cursor-pt,.u-legend{display:none}
.says{margin-bottom:.6rem}
.says.good{color:var(--good)}.says.bad{color:var(--bad)}.says.busy{color:var(--busy)}.says:empty{display:none}
dl{display:grid;grid-template-columns:auto 1fr;gap:.15rem 1rem;margin:0}
dt{color:var(--soft)}
dd{margin:0;text-align:right;overflow-wrap:break-word;min-width:0;font-variant-numeric:tabular-nums}
table{width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.3rem 0 .3rem 1.5rem;text-align:left;font-weight:400;border-top:1px solid var(--line);overflow-wrap:break-word;vertical-align:top}
th:first-child{padding-left:0}
thead th{border-top:0;color:var(--soft)}
.number{text-align:right}
progress{width:100%;height:.6rem;margin-top:.5rem;accent-color:var(--link)}
form{display:flex;flex-wrap:wrap;gap:.5rem;align-items:center;margin-top:.9rem}
#ask-token{display:flex;gap:.5rem;align-items:center}#ask-token[hidden]{display:none}
#find{margin-bottom:.5rem}
select{flex:1;min-width:0}
select,button,input{font:inherit;color:inherit;background:var(--back);border:1px solid var(--soft);border-radius:.4rem;padding:.3rem .7rem;min-width:0}
button{cursor:pointer}button:disabled{opacity:.6}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
output{flex-basis:100%;color:var(--soft)}
a{color:var(--link)}
@media(max-width:44rem){
header,main,footer{padding:.75rem}
table,tbody,tr{display:block}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table[hidden]{display:none}
tbody tr{border:1px solid var(--line);border-radius:.5rem;padding:.5rem .75rem;margin-bottom:.6rem}
tbody th,tbody td{display:flex;justify-content:space-between;gap:1rem;border:0;padding:.1rem 0;text-align:right;overflow-wrap:anywhere}
tbody th{font-weight:600;text-align:left}
tbody td::before{content:attr(data-label);color:var(--soft);text-align:left;flex:none}
#callers tr{display:grid;grid-template-columns:2fr 3fr;gap:0 1rem}
#callers td{gap:.5rem}
#callers .number{white-space:nowrap}
#callers th,#callers td:not(.number){grid-column:1/-1}
#requests tr{display:grid;grid-template-columns:1fr 1fr;gap:0 1rem}
#requests th{grid-column:1/-1}
#problems tr{display:flex;flex-wrap:wrap;gap:0 1rem}
#problems td:nth-child(even){flex:1 1 55%;justify-content:flex-end}
#problems td:nth-child(3){flex:1 1 20%}
#problems td:nth-child(4){flex-basis:20%}
#problems td:last-child{flex-basis:100%;color:var(--soft);font-size:.85rem}
#problems td::before{content:none}
}
`;
