#!/usr/bin/env python3
"""Two keys: what is matched per key, and what must not be.

Three writers: W1 matches key 1, W2 key 2, WB both. Each key has its entry and its flight; PENDING, the RING and the stream
are shared. PostgreSQL's commit is modelled as in fillrace.py (WAL order = stream order; visible in any order, any time later;
acknowledged). Readers choose a key with every look-up.

Checked: FRESH (an entry reflects every delivered commit that matches its key), MONO (what one session sees never goes back,
across keys: the database is one history), RYW (a hit reflects every acknowledged write that matches its key), and
SPARE (precision: a commit never taints or invalidates a key that it does not match).
"""
from search import Switches, explore, main

NAME=('W1','W2','WB')
KEYS=(0,1)
REL=(frozenset((0,2)),frozenset((1,2)))   # commits that matter to key 1, key 2

class P(Switches):
    per_key=True       # match per key, else every commit matches every key
    invalidate='all'        # a commit that matches several keys invalidates 'all' of them | the 'first'
    taint='all'         # ... and taints 'all' of their flights | the 'first'
    pending='proof'    # a commit leaves PENDING by 'proof' | also when 'consumed' by a flight that it made fail
    carry='key'        # what a flight takes along from PENDING: 'key' (what matches) | 'other' (what matches the other key)
    ring=None          # None: early tags, flights are tainted | 'oldest': deferred tags, the RING is kept for the oldest flight
                       # | 'any': deferred tags, the RING is cut whenever any flight ends
    watermark=False        # session watermark = end() of the last read upstream, and read_end of what it hit
    read_end=False     # a hit needs applied >= the entry's read_end
    wait=False         # acknowledgements wait until the commit was delivered
    probe=True         # S0 pipelined before the query
    look=(2,1)         # look-ups per reader
    rounds=1           # prober rounds
    writers=(0,1,2)
    choice=True        # readers choose the key, else reader i reads key i
    check=('FRESH',)

def run(p):
    # state: wal, vis, acked, dl, pending, ring start, entries, readers, prober, clock, spare fault
    # entry: (result, start clock, read_end)    reader: (look-ups left, phase, key, seen, watermark, last clock, fill)
    # fill: (start clock, start dl, carry, taint, S0, result)
    init=((),frozenset(),frozenset(),0,frozenset(),0,(None,None),tuple((k,'idle',0,frozenset(),0,0,None) for k in p.look),('idle',0,None),0,'')
    rel=lambda k:REL[k] if p.per_key else REL[0]|REL[1]
    show=lambda xs:'{'+','.join(NAME[x] for x in sorted(xs))+'}'
    hits=lambda x:[k for k in KEYS if x in rel(k)]
    def check(s):
        wal,vis,acked,dl,pend,rg,ents,rds,prb,clk,fault=s
        if fault: return fault
        for k in KEYS:
            if ents[k] is not None and not REL[k]&frozenset(wal[:dl])<=ents[k][0]:
                return ('FRESH',f'entry {k+1}={show(ents[k][0])}, delivered {show(wal[:dl])}')
        return None
    def steps(s):
        wal,vis,acked,dl,pend,rg,ents,rds,prb,clk,fault=s; out=[]
        for w in p.writers:
            if w not in wal: out.append((f'{NAME[w]}: commit record in WAL',(wal+(w,),*s[1:])))
            elif w not in vis: out.append((f'{NAME[w]}: visible',(wal,vis|{w},*s[2:])))
            elif 'RYW' in p.check and w not in acked and not (p.wait and w not in wal[:dl]):
                out.append((f'{NAME[w]}: client gets the ack',(wal,vis,acked|{w},*s[3:])))
        if dl<len(wal):
            x=wal[dl]; hk=hits(x); e2=list(ents); r2=list(rds); bad=''
            for k in (hk if p.invalidate=='all' else hk[:1]): e2[k]=None
            done=False
            for i,r in enumerate(rds):
                if p.ring is None and r[6] is not None and r[2] in hk and not (p.taint=='first' and done):
                    f=r[6]; r2[i]=(*r[:6],(*f[:3],f[3]|{x},*f[4:])); done=True
            if 'SPARE' in p.check:
                lost=[k for k in KEYS if ents[k] is not None and e2[k] is None and x not in REL[k]]
                if lost: bad=('SPARE',f'{NAME[x]} invalidated key {lost[0]+1}')
            out.append((f'stream delivers {NAME[x]}',(wal,vis,acked,dl+1,pend|{x},rg,tuple(e2),tuple(r2),prb,clk,bad)))
        if prb[0]=='idle' and prb[1]<p.rounds and pend: out.append((f'prober takes snapshot {show(vis)}',(*s[:8],('out',prb[1]+1,vis),clk,fault)))
        elif prb[0]=='out': out.append((f'prober answer {show(prb[2])}',(wal,vis,acked,dl,pend-prb[2],rg,ents,rds,('idle',prb[1],None),clk,fault)))
        for i,r in enumerate(rds):
            left,ph,key,sn,watermark,last,f=r
            def go(lab,nr,**k):
                d=dict(pend=pend,rg=rg,ents=ents,clk=clk,fault=fault); d.update(k)
                out.append((f'R{i}: '+lab,(wal,vis,acked,dl,d['pend'],d['rg'],d['ents'],rds[:i]+(nr,)+rds[i+1:],prb,d['clk'],d['fault'])))
            if ph=='idle' and left>0:
                for k in (KEYS if p.choice else (i,)):
                    e=ents[k]
                    if e is not None and not (p.read_end and dl<e[2]) and not (p.watermark and not (dl>=watermark or e[1]>last)):
                        bad=''
                        if 'RYW' in p.check and not acked&REL[k]<=e[0]: bad=('RYW',f'R{i} hit key {k+1} {show(e[0])}, acknowledged {show(acked)}')
                        if 'MONO' in p.check and not sn&REL[k]<=e[0]: bad=('MONO',f'R{i} saw {show(sn)}, now hit key {k+1} {show(e[0])}')
                        go(f'HIT key {k+1} {show(e[0])}',(left-1,'idle',0,sn|(e[0] if 'MONO' in p.check else frozenset()),max(watermark,e[2]) if p.watermark else 0,max(last,clk) if p.watermark else 0,None),fault=bad)
                    elif not any(o[6] is not None and o[2]==k for o in rds):
                        want=rel(k) if p.carry=='key' else rel(1-k)
                        go(f'MISS key {k+1}, fill registered (pending {show(pend)})',(left,'reg',k,sn,watermark,last,(clk+1 if p.watermark else 0,dl if p.ring else 0,pend&want,frozenset(),frozenset(),None)),clk=clk+1 if p.watermark else 0)
            elif ph=='reg': go(f'S0={show(vis)}' if p.probe else 'sent',(left,'exec',key,sn,watermark,last,(*f[:4],vis if p.probe else frozenset(),None)))
            elif ph=='exec': go(f'query executes on {show(vis)}',(left,'done',key,sn,watermark,last,(*f[:5],vis)))
            elif ph=='done':
                res=f[5]; cand=f[2]|(pend&rel(key))|f[3]
                if p.ring: cand|=frozenset(wal[max(f[1],rg):dl])&rel(key)
                cand-=f[4]
                rest=[o[6][1] for j,o in enumerate(rds) if j!=i and o[6] is not None]
                rg2=rg if p.ring is None else dl if p.ring=='any' else min(rest,default=dl)
                p2=pend-cand if p.pending=='consumed' else pend
                e2=list(ents)
                if not cand: e2[key]=(res,f[0],len(wal) if p.watermark or p.read_end else 0)
                bad=''
                if 'MONO' in p.check and not sn<=res: bad=('MONO',f'R{i} saw {show(sn)}, upstream result {show(res)}')
                go(f'result {show(res)} of key {key+1} arrives; '+(f'not cached (unproven {show(cand)})' if cand else 'INSTALL'),
                   (left-1,'idle',0,sn|(res if 'MONO' in p.check else frozenset()),len(wal) if p.watermark else 0,clk if p.watermark else 0,None),pend=p2,rg=rg2,ents=tuple(e2),fault=bad)
        return out
    return explore(init,check,steps)

SMALL=dict(look=(1,1),choice=False)   # one flight per key, each by its own reader: enough for the fill race itself
V=[
 P('G1 every commit matches every key','HOLDS',per_key=False,writers=(0,2),**SMALL),
 P('G2 entries, flights and PENDING matched per key','HOLDS',fast=dict(writers=(0,2)),**SMALL),
 P('G3 G1 is not precise: a commit invalidates a key that it does not match','VIOLATION',per_key=False,check=('FRESH','SPARE'),**SMALL),
 P('G4 G2 is precise','HOLDS',fast=dict(writers=(0,2)),check=('FRESH','SPARE'),**SMALL),
 P('G5 a commit that matches both keys invalidates the first only','VIOLATION',invalidate='first',**SMALL),
 P('G6 ... taints the first flight only','VIOLATION',taint='first',**SMALL),
 P('G7 a commit leaves PENDING once a flight of one key failed on it','VIOLATION',pending='consumed',**SMALL),
 P('G8 a flight carries what was PENDING for the other key','VIOLATION',carry='other',**SMALL),
 P('G9 deferred tags, RING kept for the oldest flight of any key','HOLDS',ring='oldest',fast=dict(writers=(0,2)),**SMALL),
 P('G10 deferred tags, RING cut when a flight of any key ends','VIOLATION',ring='any',writers=(0,2),**SMALL),
 P('G11 monotonic across keys without a session watermark','VIOLATION',rounds=0,writers=(0,2),check=('FRESH','MONO')),
 P('G12 ... hits need applied >= read_end, no session watermark','VIOLATION',read_end=True,rounds=0,writers=(0,2),check=('FRESH','MONO')),
 P('G13 ... with the session watermark','HOLDS',read_end=True,watermark=True,rounds=0,writers=(0,2),check=('FRESH','MONO')),
 P('G14 read your writes per key: ack waits until delivered','HOLDS',wait=True,rounds=0,fast=dict(writers=(0,2)),check=('FRESH','RYW'),**SMALL),
]
if __name__=='__main__': main(V,run)
