#!/usr/bin/env python3
"""Tags from a key query that runs in another snapshot than the client's query, and the rule `applied >= read_end`.

The query joins a driver row (it holds a link, at first to row a) with the row it links to: result = (link, version of
the linked row). Three writers, which lock different rows, so that their WAL, visible and delivery order are free:
 L  link := b        Wa  new version of row a        Wb  new version of row b
The driver's tag is known before (L always matches); the linked row's tag K comes from the key query, in whatever
state that one saw. K = {a} does not match Wb. A commit may be visible before it is flushed (synchronous_commit=off);
the stream delivers flushed commits in WAL order.

Checked: FRESH, whenever a hit could be served (entry installed and, if the rule is on, applied >= read_end): the entry
equals the query on some state that contains every delivered commit.
"""
from search import Switches, explore, main
from itertools import combinations

L,WA,WB=range(3); NAME=('L','Wa','Wb')

def value(s):
    link='b' if L in s else 'a'
    return (link,(WB if link=='b' else WA) in s)
def link(s): return 'b' if L in s else 'a'
def matches(x,k): return x==L or (x==WA and k=='a') or (x==WB and k=='b')
def reflects(result,deliv,wal):
    """Is there a state between what was delivered and all that is committed in which the query gives this result?"""
    more=[x for x in wal if x not in deliv]
    return any(value(deliv|set(c))==result for n in range(len(more)+1) for c in combinations(more,n))

class P(Switches):
    rule=True          # a hit needs applied >= read_end
    end='after'        # end() is read 'after' both queries | 'before' them | 'flush': after, but the flush position
    order='keys'       # which query runs first: 'keys' | 'query' | 'exact' (both in one snapshot)
    final=True         # RING since the start is matched by the final tags too, else early tags only
    fills=2            # fills, one after the other (single flight)
    rounds=1           # prober rounds

def run(p):
    # state: wal, flushed, vis, dl, pending, entry, fills left, fill, prober
    # entry: (result, K, read_end)     fill: (phase, start dl, carry, S0, K, result, read_end)
    init=((),0,frozenset(),0,frozenset(),None,p.fills,None,('idle',0,None))
    def check(s):
        wal,fl,vis,dl,pend,ent,left,f,prb=s
        if ent is None or (p.rule and dl<ent[2]): return None
        deliv=set(wal[:dl])
        if reflects(ent[0],deliv,wal): return None
        return ('FRESH',f'entry={ent[0]} tagged {ent[1]} can be served, delivered {[NAME[x] for x in wal[:dl]]}')
    def steps(s):
        wal,fl,vis,dl,pend,ent,left,f,prb=s; out=[]
        names=lambda xs:'{'+','.join(NAME[x] for x in sorted(xs))+'}'
        for w in range(3):
            if w not in wal: out.append((f'{NAME[w]}: commit record in WAL ({len(wal)+1})',(wal+(w,),*s[1:])))
            elif w not in vis: out.append((f'{NAME[w]}: visible',(wal,fl,vis|{w},*s[3:])))
        if fl<len(wal): out.append((f'WAL flushed up to {fl+1}',(wal,fl+1,*s[2:])))
        if dl<fl:
            x=wal[dl]; e2=None if ent is not None and matches(x,ent[1]) else ent
            out.append((f'stream delivers {NAME[x]}'+(', invalidates' if e2 is not ent else ''),(wal,fl,vis,dl+1,pend|{x},e2,left,f,prb)))
        if prb[0]=='idle' and prb[1]<p.rounds and pend: out.append((f'prober takes snapshot {names(vis)}',(*s[:8],('out',prb[1]+1,vis))))
        elif prb[0]=='out': out.append((f'prober answer {names(prb[2])}',(wal,fl,vis,dl,pend-prb[2],ent,left,f,('idle',prb[1],None))))
        def fill(lab,nf): out.append((lab,(wal,fl,vis,dl,pend,ent,left,nf,prb)))
        end=lambda: fl if p.end=='flush' else len(wal)
        if f is None:
            if ent is None and left: out.append((f'MISS, fill registered (pending {names(pend)})',(wal,fl,vis,dl,pend,ent,left-1,('reg',dl,pend,None,None,None,0),prb)))
            return out
        ph,seq,carry,S0,K,res,rend=f
        if ph=='reg': fill(f'S0={names(vis)}',('s0',seq,carry,vis,K,res,end() if p.end=='before' else 0))
        elif ph=='s0':
            if p.order=='exact': fill(f'one snapshot: K={link(vis)} result={value(vis)}',('end',seq,carry,S0,link(vis),value(vis),rend))
            elif p.order=='keys': fill(f'key query: K={link(vis)}',('second',seq,carry,S0,link(vis),res,rend))
            else: fill(f'query: result={value(vis)}',('second',seq,carry,S0,K,value(vis),rend))
        elif ph=='second':
            if p.order=='keys': fill(f'query: result={value(vis)}',('end',seq,carry,S0,K,value(vis),rend))
            else: fill(f'key query: K={link(vis)}',('end',seq,carry,S0,link(vis),res,rend))
        elif ph=='end':
            fill(f'end()={end()}',('done',seq,carry,S0,K,res,rend if p.end=='before' else end()))
        else:
            cand=carry|pend|set(wal[seq:dl])
            cand=frozenset(x for x in cand if (x==L or (p.final and matches(x,K))) and x not in S0)
            e2=(res,K,rend) if not cand else None
            out.append((f'result {res} K={K} read_end={rend}: '+('INSTALL' if e2 else f'not cached (unproven {names(cand)})'),(wal,fl,vis,dl,pend,e2,left,None,prb)))
        return out
    return explore(init,check,steps)

V=[
 P('J1 keys read in an earlier snapshot than the query, no read_end rule','VIOLATION',rule=False),
 P('J2 keys read in a later snapshot than the query, no read_end rule','VIOLATION',rule=False,order='query'),
 P('J3 key query and query in one snapshot (REPEATABLE READ), no read_end rule','HOLDS',rule=False,order='exact',fast=dict(fills=1)),
 P('J4 key query first, hits need applied >= read_end, end() read after both','HOLDS',fast=dict(fills=1)),
 P('J5 query first, hits need applied >= read_end, end() read after both','HOLDS',order='query',fast=dict(fills=1)),
 P('J6 J4 with end() read before the queries','VIOLATION',end='before'),
 P('J7 J4 with the flush position as end() (misses synchronous_commit=off commits)','VIOLATION',end='flush'),
 P('J8 J4, but what was delivered during the flight is matched by the early tags only','VIOLATION',final=False),
]
if __name__=='__main__': main(V,run)
