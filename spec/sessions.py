#!/usr/bin/env python3
"""What one session may be shown: joiners of another's flight, and the session watermark with hits and misses mixed.

One session looks keys up; others fill them, one flight per key. All writers match all keys: the database is one history. A read
upstream raises the session's watermark to end(); afterwards a hit needs applied >= watermark, or an entry whose fill started after that
read, or a lease whose reading was asked for after it. Entries, flights and leases carry one bit: newer than the session's last read.

A session that misses while the key's flight is under way may join it. It is then answered by the entry, if one was installed and
the rules of a hit allow it, else it starts over; the leader is always answered by its own result.

Checked: FRESH, RYW (a hit, or what a joiner gets, reflects all that was acknowledged when its look-up began; acknowledgements
wait until delivered) and MONO.
"""
from collections import namedtuple
from search import Switches, explore, main

class P(Switches):
    keys=1
    join=None          # None: a miss under a flight reads upstream | 'rules': as above | 'result': joiners get the leader's result
                       # | 'installed': ... only if it was installed, without the rules of a hit
    acks=False         # writes are acknowledged once delivered
    watermark=True         # hits need applied >= the end() of the session's last read upstream, or what is newer than it
    end='after'        # that end() is read 'after' the query | 'before' it
    newer='started'    # an entry is newer if its fill 'started' after the session's last read | if it was 'installed' after it
    lease=None         # a lease is newer if its reading was 'asked' for after that read | if it 'arrived' after it
    position=True      # applied >= watermark counts at all; without it only what is newer
    read_end=True      # hits need applied >= read_end; then they leave the watermark as it is
    exact=True         # a fill's proof and query share one snapshot; without it there may be anything between them
    look=2
    fills=2
    writers=(0,1)

# ents: (result, read_end, newer)   fills: (phase, candidates, S0, result, newer, read_end)   lease: None | (phase, newer, end)
# ses: (look-ups left, phase, key, seen, watermark, acknowledged at the start, result, end)
St=namedtuple('St','wal vis acked dl pend ents fills left asof lease ses bad')

def run(p):
    K=range(p.keys)
    init=St((),frozenset(),frozenset(),0,frozenset(),(None,)*p.keys,(None,)*p.keys,p.fills,not p.lease,None,(p.look,'idle',0,frozenset(),0,frozenset(),None,0),'')
    show=lambda xs:'{'+','.join(f'W{x}' for x in sorted(xs))+'}'
    put=lambda t,i,v:t[:i]+(v,)+t[i+1:]
    def check(s):
        if s.bad: return s.bad
        for k in K:
            if s.ents[k] is not None and not frozenset(s.wal[:s.dl])<=s.ents[k][0]: return ('FRESH',f'entry {k}={show(s.ents[k][0])}, delivered {show(s.wal[:s.dl])}')
        return None
    def wrong(ses,res):
        if not ses[5]<=res: return ('RYW',f'answered {show(res)}, acknowledged before {show(ses[5])}')
        if not ses[3]<=res: return ('MONO',f'answered {show(res)}, saw {show(ses[3])} before')
        return ''
    def usable(s,e):
        if p.read_end and s.dl<e[1]: return False
        return not p.watermark or (p.position and s.dl>=s.ses[4]) or e[2] or bool(p.lease and s.asof)
    def answered(ses,res): return (ses[0]-1,'idle',0,ses[3]|res,ses[4],frozenset(),None,0)
    def steps(s):
        out=[]
        def add(lab,**k): out.append((lab,s._replace(**k)))
        for w in p.writers:
            if w not in s.wal: add(f'W{w}: commit record in WAL',wal=s.wal+(w,))
            elif w not in s.vis: add(f'W{w}: visible',vis=s.vis|{w})
            elif p.acks and w not in s.acked and w in s.wal[:s.dl]: add(f'W{w}: acknowledged',acked=s.acked|{w})
        if s.dl<len(s.wal):
            x=s.wal[s.dl]
            add(f'stream delivers W{x}',dl=s.dl+1,ents=(None,)*p.keys,pend=s.pend|{x},fills=tuple(f and put(f,1,f[1]|{x}) for f in s.fills))
        if p.lease:
            l=s.lease
            if l is None:
                if not s.asof: add('lease: asks for end()',lease=('asked',True,0))
            elif l[0]=='asked': add(f'lease: end()={len(s.wal)}',lease=('read',l[1],len(s.wal)))
            elif l[0]=='read': add('lease: answer arrives',lease=('answer',l[1] or p.lease=='arrived',l[2]))
            elif s.dl>=l[2]: add('lease renewed',asof=s.asof or l[1],lease=None)
        for k in K:          # the others' fills
            f=s.fills[k]
            def fill(lab,f,**k2): add(f'fill {k}: '+lab,fills=put(s.fills,k,f),**k2)
            if f is None:
                if s.ents[k] is None and s.left: fill(f'registered (pending {show(s.pend)})',('reg',s.pend,None,None,True,0),left=s.left-1)
            elif f[0]=='reg' and p.exact: fill(f'S0 and query: result={show(s.vis)}',('done',f[1],s.vis,s.vis,f[4],0))
            elif f[0]=='reg': fill(f'S0={show(s.vis)}',('s0',f[1],s.vis,None,f[4],0))
            elif f[0]=='s0': fill(f'query: result={show(s.vis)}',('done',f[1],f[2],s.vis,f[4],0))
            elif f[0]=='done': fill(f'end()={len(s.wal)}',('end',*f[1:5],len(s.wal)))
            else:
                res=f[3]; ok=not f[1]-f[2]
                e=(res,f[5],f[4] or p.newer=='installed')
                ses=s.ses; bad=''; told=''
                if ses[1]=='joined' and ses[2]==k:
                    if p.join=='result' or (ok and (p.join=='installed' or usable(s,e))):
                        bad=wrong(ses,res); ses=answered(ses,res); told=', joiner answered'
                    else: ses=(ses[0],'idle',0,ses[3],ses[4],frozenset(),None,0); told=', joiner starts over'
                fill(f'result {show(res)} arrives; '+('INSTALL' if ok else 'not cached')+told,None,ents=put(s.ents,k,e) if ok else s.ents,ses=ses,bad=bad)
        # the session
        left,ph,key,sn,watermark,acked,res,end=s.ses
        if ph=='idle' and left:
            for k in K:
                e=s.ents[k]; now=(left,ph,k,sn,watermark,s.acked,None,0)
                if e is not None and usable(s,e): add(f'session: HIT {k} {show(e[0])}',ses=answered(now,e[0]),bad=wrong(now,e[0]))
                elif e is None and s.fills[k] is not None and p.join: add(f'session: joins the flight of {k}',ses=put(now,1,'joined'))
                else: add(f'session: sends query {k}',ses=(left,'sent',k,sn,watermark,s.acked,None,len(s.wal)))
        elif ph=='sent': add(f'session: query executes on {show(s.vis)}',ses=(left,'read',key,sn,watermark,acked,s.vis,end))
        elif ph=='read': add(f'session: end()={len(s.wal)}',ses=(left,'end',key,sn,watermark,acked,res,end if p.end=='before' else len(s.wal)))
        elif ph=='end':
            old=lambda xs,i:tuple(x and put(x,i,False) for x in xs)
            add(f'session: result {show(res)} arrives, watermark {end}',ses=(left-1,'idle',0,sn|res,end,frozenset(),None,0),bad=wrong(s.ses,res),
                ents=old(s.ents,2),fills=old(s.fills,4),asof=False if p.lease else True,lease=s.lease and put(s.lease,1,False))
        return out
    return explore(init,check,steps)

TWO=dict(keys=2,writers=(0,))
ONE=dict(writers=(0,))
V=[
 P('K1 joiners get the result of a tainted flight','VIOLATION RYW',join='result',acks=True,exact=False),
 P('K2 joiners get the result if it was installed, without the rules of a hit','VIOLATION MONO',join='installed',acks=True,exact=False),
 P('K3 joiners get an installed entry under the rules of a hit, else start over','HOLDS',join='rules',acks=True,exact=False,look=3,fast=dict(look=2)),
 P('M1 no session watermark','VIOLATION MONO',watermark=False,**TWO),
 P('M2 watermark: applied >= end() of the last read, or an entry started after it','HOLDS',keys=2,fast=ONE),
 P('M3 M2 with end() read before the query','VIOLATION MONO',end='before',**TWO),
 P('M4 M2, but an entry installed after the last read is taken for newer','VIOLATION MONO',newer='installed',**TWO),
 P('M5 watermark without positions: an entry started, or a lease asked for, after the last read','HOLDS',position=False,lease='asked',keys=2,writers=(0,),fast=dict(keys=1)),
 P('M6 M5 with a lease that arrived after the last read','VIOLATION MONO',position=False,lease='arrived',keys=2,writers=(0,),fast=dict(fills=1)),
 P('M7 M2 without applied >= read_end: a hit shows what other entries lack','VIOLATION MONO',read_end=False,**TWO),
]
if __name__=='__main__': main(V,run)
